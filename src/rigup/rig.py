"""The rig: the hardware of a group of equal hosts. `RigInput` is the user's input, `Rig` the resolved form."""

import re
from collections import Counter
from typing import Annotated, Literal

from pydantic import Field

from rigup.artifacts import Architecture, Variant
from rigup.node import Network
from rigup.units import Capability, Frozen, compute_capability

SUPPORTED_OS = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")


class HostMemory(Frozen):
    """The speed of a host's memory: channels with a module, and millions of transfers per second of each."""

    channels: Annotated[int, Field(ge=1, le=64)]
    kind: str
    megatransfers: Annotated[int, Field(ge=200, le=20_000)]

    @classmethod
    def read(cls, text: str) -> "HostMemory | None":
        """Parses text like "8x DDR5-4800"; None for any other text."""
        found = re.fullmatch(r"\s*([0-9]{1,2})\s*[x*]\s*((?:LP)?DDR[3-6]X?)-([0-9]{3,5})\s*", text, re.IGNORECASE)
        if found is None or not 1 <= int(found[1]) <= 64 or not 200 <= int(found[3]) <= 20_000:
            return None
        return cls(channels=int(found[1]), kind=found[2].upper(), megatransfers=int(found[3]))

    @property
    def text(self) -> str:
        """As users write it: "8x DDR5-4800"."""
        return f"{self.channels}x {self.kind}-{self.megatransfers}"

    @property
    def bandwidth_gbs(self) -> float:
        """10**9 bytes per second at most: a channel is 64 bits wide."""
        return self.channels * self.megatransfers * 8 / 1000


class RigInput(Frozen):
    """`rig` in group_data, as written. Only `gpus` is required: "4x RTX 3090", a list of names, or [] for none.

    host_memory: "8x DDR5-4800": channels with a module in them, kind and speed. power_limit_w: watts, for each GPU.
    hosts_per_service: how many hosts of the group, in the inventory's order, one service spans. network: between them.
    """

    gpus: str | tuple[str, ...]
    host_memory_gib: Annotated[float, Field(gt=0, le=65536)] | None = None
    host_memory: str | None = None
    os: str | None = None
    power_limit_w: Annotated[int, Field(ge=1, le=10000)] | None = None
    hosts_per_service: Annotated[int, Field(ge=1, le=64)] = 1
    network: Network = Network()


class Gpu(Frozen):
    """One GPU of a rig, with the figures that planning uses. Each figure's source is in `sources`, by field name.

    memory_mib: what NVML reports as total, MiB; None where NVML answers "not supported" (GB10: the host's memory).
    memory_bandwidth_gbs: 10**9 bytes per second. tensor_tflops: 10**12 operations per second in bf16, dense, added up
    in float32; None where it is not known.
    moe_config_name: the device name in the engines' fused-MoE config files.
    host_architecture: of its machine; a GPU on a card is assumed to be in an x86_64 machine.
    """

    key: str
    name: str
    moe_config_name: str
    architecture: str
    compute_capability: Capability
    memory_mib: Annotated[int, Field(ge=1)] | None = None
    memory_bandwidth_gbs: Annotated[float, Field(gt=0)]
    tensor_tflops: Annotated[float, Field(gt=0)] | None = None
    unified_memory: bool = False
    default_power_w: Annotated[int, Field(ge=1)] | None = None
    power_range_w: tuple[int, int] | None = None
    open_kernel_module: Literal["supported", "required"] = "supported"
    nvswitch: bool = False
    host_architecture: Architecture = "x86_64"
    minimum_driver_branch: Annotated[int, Field(ge=1)] | None = None
    sources: dict[str, str] = {}

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, for comparing."""
        return compute_capability(self.compute_capability)


class Rig(Frozen):
    """A rig with every name resolved. An empty `gpus` is a CPU-only machine. host_memory: None where nobody says.

    keep_driver: each host keeps the NVIDIA driver that it has, whatever the lock pins.
    """

    gpus: tuple[Gpu, ...]
    host_memory_gib: float | None = None
    host_memory: HostMemory | None = None
    os: str | None = None
    power_limit_w: int | None = None
    hosts_per_service: int = 1
    network: Network = Network()
    keep_driver: bool = False

    @property
    def text(self) -> str:
        """One line: "4x NVIDIA GeForce RTX 3090, 64 GiB host memory, debian-12"."""
        counts = Counter(gpu.name for gpu in self.gpus)
        parts = [f"{count}x {name}" for name, count in counts.items()] or ["no GPU"]
        speed = f" ({self.host_memory.text})" if self.host_memory else ""
        parts += [f"{self.host_memory_gib:g} GiB host memory{speed}"] if self.host_memory_gib is not None else []
        return ", ".join([*parts, *([self.os] if self.os else [])])

    @property
    def architecture(self) -> Architecture:
        """The processor architecture of its hosts."""
        return next((gpu.host_architecture for gpu in self.gpus), "x86_64")

    @property
    def variant(self) -> Variant:
        """Which builds of an engine run on it."""
        return "cuda" if self.gpus else "cpu"

    @property
    def compute_capabilities(self) -> tuple[str, ...]:
        """The distinct compute capabilities, ascending: what a CUDA build must be compiled for."""
        return tuple(sorted({gpu.compute_capability for gpu in self.gpus}, key=compute_capability))
