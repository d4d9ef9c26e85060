"""What an inventory says of a host beside `rig` and `services`, as values that roles and operations take.

`project/settings.py` reads them from a host's data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from rigup.gateway_settings import GatewaySettings
    from rigup.plan import Monitoring

HUB = "https://huggingface.co"
OLLAMA = "https://registry.ollama.ai"
CONTROLLER = "controller"
"""The name of the controlling machine as a builder."""
MB = 1_000_000


@dataclass(frozen=True)
class PackageSource:
    """Where a host gets Python packages from.

    index: a simple index that the host queries; None for uv's default, the public one. python_mirror: where uv gets
    Python from, as its UV_PYTHON_INSTALL_MIRROR. wheelhouse: a folder of this machine whose `wheels` are sent instead,
    and whose `python`, if it has one, holds Python as such a mirror does.
    """

    index: str | None = None
    python_mirror: str | None = None
    wheelhouse: Path | None = None


class Builder(NamedTuple):
    """Whose builds hosts take. name: a host of the inventory, or CONTROLLER. folder: of its build records, here."""

    name: str
    folder: Path

    def archive(self, build: str) -> Path:
        """The archive of a build, which exists if there is a record of it."""
        return self.folder / f"{build}.tar.gz"


class WeightsSettings(NamedTuple):
    """How weights travel to and from a host.

    share: whether the host downloads together with others. keep: whether its weights server keeps running afterwards.
    port: of that server. from_bytes: the size from which a checkpoint is shared. hub_bytes_per_second,
    lan_bytes_per_second: 0 for no limit. lan: the host shares with hosts of the same `lan` only. lan_address: where
    other hosts reach this one; None for the address that SSH connects to.
    """

    share: bool = True
    keep: bool = False
    port: int = 8791
    from_bytes: int = 256 * MB
    hub_bytes_per_second: int = 0
    lan_bytes_per_second: int = 0
    lan: str = ""
    lan_address: str | None = None


@dataclass(frozen=True)
class HostSettings:
    """Everything that the roles need to know of a host beside its plans.

    nvidia_repository: a mirror of NVIDIA's package repositories. nvidia_key_fingerprint: of the key that signs it.
    hub_token, api_keys: secrets; keys by service, and rigup makes one for a service that needs a key and has none.
    packages: where Python packages come from.
    image_mirrors: mirrors by the container registry that they replace: {"docker.io": "https://mirror.lan"}.
    container_toolkit_repository, container_toolkit_key_fingerprint: the same for NVIDIA's container toolkit.
    monitoring: which exporters run; None for none.
    weights: how weights travel; None for the defaults.
    builders: whose builds from source and GPU kernels the host takes, any of them; () if it compiles for itself.
    gateway: what the host offers as a gateway; None for none.
    ollama_registry: where checkpoints with a name in Ollama's registry come from.
    disabled: names of services that are to stay stopped: `enabled = False` in the inventory.
    remove: whether services that are no longer in the inventory are removed; set by a command-line option only.
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
    builders: tuple[Builder, ...] = ()
    gateway: GatewaySettings | None = None
    disabled: tuple[str, ...] = ()
    remove: bool = False
    ollama_registry: str = OLLAMA

    def source_of(self, location: str) -> tuple[str, str | None]:
        """Where the host downloads a checkpoint with this location, and with which token: only the hub gets one."""
        return (self.ollama_registry, None) if location.startswith("ollama:") else (self.hub, self.hub_token)

    @property
    def weights_limits(self) -> tuple[int, int]:
        """Bytes per second that a host may download of weights, from the hub and from other hosts; 0 for no limit."""
        return (self.weights.hub_bytes_per_second, self.weights.lan_bytes_per_second) if self.weights else (0, 0)
