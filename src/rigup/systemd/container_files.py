"""The files that containers need on a host: mirrors of registries, and where NVIDIA's container toolkit comes from."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from rigup.catalogue.containers import container_facts
from rigup.catalogue.drivers import DEBIAN_ARCHITECTURES
from rigup.plan import DriverRepository
from rigup.systemd.driver_files import preferences

REGISTRIES = "/etc/containers/registries.conf.d/50-rigup.conf"
SOURCE = "/etc/apt/sources.list.d/nvidia-container-toolkit.sources"
KEYRING = "/etc/apt/keyrings/rigup-nvidia-container-toolkit.gpg"
PREFERENCES = "/etc/apt/preferences.d/00-rigup-nvidia-container-toolkit"


def mirrors(addresses: Mapping[str, str]) -> str:
    """The mirrors for podman, which asks one before the registry that it stands for; "" for none.

    Source: containers-registries.conf(5). What a mirror sends is checked by digest, so it may speak plain HTTP.
    """
    blocks = []
    for registry, address in sorted(addresses.items()):
        scheme, _, host = address.partition("://")
        insecure = "true" if scheme == "http" else "false"
        blocks.append(
            f'[[registry]]\nprefix = "{registry}"\nlocation = "{registry}"\n\n'
            f'[[registry.mirror]]\nlocation = "{host}"\ninsecure = {insecure}\n'
        )
    return "# Written by rigup\n\n" + "\n".join(blocks) if blocks else ""


def toolkit_repository(
    architecture: str, address: str | None = None, fingerprint: str | None = None
) -> DriverRepository:
    """The repository of NVIDIA's container toolkit for one host.

    address: what stands in for NVIDIA's own; the same files lie below it. fingerprint: of the key that signs it, where
    that is another one.
    """
    toolkit = container_facts().toolkit
    base = (address or toolkit.address).rstrip("/")
    scheme, _, place = base.partition("://")
    folder = DEBIAN_ARCHITECTURES[architecture]
    return DriverRepository(
        address=f"{base}/{folder}/",
        key_address=f"{scheme}://{posixpath.normpath(posixpath.join(place, toolkit.key_file))}",
        fingerprint=fingerprint or toolkit.fingerprint,
        architecture=folder,
    )


def toolkit_files(repository: DriverRepository) -> dict[str, str]:
    """Text by path: the source, signed by a key of its own, and the version that apt keeps."""
    toolkit = container_facts().toolkit
    source = (
        "# Written by rigup\n"
        "Types: deb\n"
        f"URIs: {repository.address}\n"
        "Suites: /\n"
        f"Architectures: {repository.architecture}\n"
        f"Signed-By: {KEYRING}\n"
    )
    held = preferences(
        f"NVIDIA's container toolkit stays at {toolkit.version}",
        {f"{toolkit.package} nvidia-container-toolkit libnvidia-container*": toolkit.version},
    )
    return {SOURCE: source, PREFERENCES: held}
