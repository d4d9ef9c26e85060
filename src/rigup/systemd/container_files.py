"""The files that containers need on a host: registry mirrors, and the repository of NVIDIA's container toolkit."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from rigup.catalogue.drivers import DEBIAN_ARCHITECTURES
from rigup.catalogue.tools.containers import container_facts
from rigup.plan import DriverRepository
from rigup.systemd.driver_files import preferences, source

REGISTRIES = "/etc/containers/registries.conf.d/50-rigup.conf"
SOURCE = "/etc/apt/sources.list.d/nvidia-container-toolkit.sources"
KEYRING = "/etc/apt/keyrings/rigup-nvidia-container-toolkit.gpg"
PREFERENCES = "/etc/apt/preferences.d/00-rigup-nvidia-container-toolkit"


def mirrors(addresses: Mapping[str, str]) -> str:
    """The configuration of mirrors for podman, which asks a mirror before the registry; "" without mirrors.

    Source: containers-registries.conf(5). A mirror may use plain HTTP, because podman checks images by digest.
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

    address: a replacement for NVIDIA's own repository, with the same files. fingerprint: of the key that signs it, if
    it is not NVIDIA's.
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
    """Maps path to text: the apt source with its own signing key, and the pinned version."""
    toolkit = container_facts().toolkit
    held = preferences(
        f"rigup pins NVIDIA's container toolkit to {toolkit.version}",
        {f"{toolkit.package} nvidia-container-toolkit libnvidia-container*": toolkit.version},
    )
    return {SOURCE: source(repository, "/", KEYRING), PREFERENCES: held}
