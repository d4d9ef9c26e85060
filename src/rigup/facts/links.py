"""How the GPUs of a host are connected and whether they are well, read and measured by a program on the host."""

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from rigup.facts.bounds import Unreadable, json_of
from rigup.facts.host_output import Count, Figure, GpuIndex, HostOutput, Line, checked

MOST_LINES = 10_000
_OUTPUT = "the output of verify_links.py"


class GpuLink(HostOutput):
    """One GPU's link to the host and its health; None for what it does not report or was not measured.

    most_generation, most_width: what card and slot can together; card_generation, card_width: the card alone.
    loaded_generation, loaded_width: while data flowed. host_gbs: 10**9 bytes per second from host memory.
    ecc_uncorrected: errors since boot. iommu: the type of its domain. acs: bridges above it that redirect P2P.
    unmeasured: why it was not measured.
    """

    gpu: GpuIndex
    bus: Line
    generation: Count | None = None
    width: Count | None = None
    most_generation: Count | None = None
    most_width: Count | None = None
    card_generation: Count | None = None
    card_width: Count | None = None
    loaded_generation: Count | None = None
    loaded_width: Count | None = None
    host_gbs: Figure | None = None
    bar1_mib: Count | None = None
    ecc_uncorrected: Count | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    nvlinks: Count | None = None
    nvlinks_active: Count | None = None
    iommu: Line | None = None
    acs: Annotated[list[Line], Field(max_length=100)] | None = None
    unmeasured: Line = ""


class PairLink(HostOutput):
    """How data get from one GPU to another.

    read, write, nvlink: as NVML reports them. direct: whether CUDA lets the second read the first one's memory. gbs:
    10**9 bytes per second. correct: whether the data arrived unchanged. unmeasured: why it was not measured.
    """

    pair: Annotated[list[GpuIndex], Field(min_length=2, max_length=2)]
    read: bool | None = None
    write: bool | None = None
    nvlink: bool | None = None
    direct: bool | None = None
    gbs: Figure | None = None
    correct: bool | None = None
    unmeasured: Line = ""


class LostGpu(HostOutput):
    """A GPU that does not respond. bus: its address, "" if NVML does not tell it any more. error: NVML's."""

    lost: GpuIndex
    bus: Line = ""
    error: Line = ""


class Xid(HostOutput):
    """An error that the driver wrote to the kernel's log."""

    xid: Annotated[int, Field(ge=0, le=9999)]
    bus: Line
    text: Line = ""


class _Rest(HostOutput):
    done: bool = False
    error: Line = ""


class Links(HostOutput):
    """Everything that the program printed. error: why NVML did not answer. done: whether the program got to its end."""

    gpus: tuple[GpuLink, ...] = ()
    pairs: tuple[PairLink, ...] = ()
    xids: tuple[Xid, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    error: str = ""
    done: bool = False


_KINDS: dict[str, type[HostOutput]] = {"gpu": GpuLink, "pair": PairLink, "xid": Xid, "lost": LostGpu}
"""What a line is about, by the key that it has."""


def parse(lines: Iterable[str]) -> Links:
    """Parses the program's lines. Raises Unreadable for one that it cannot have printed."""
    found: dict[str, list[Any]] = {key: [] for key in _KINDS}
    error, done = "", False
    for number, text in enumerate(line for line in lines if line.strip()):
        if number >= MOST_LINES:
            raise Unreadable(f"{_OUTPUT}: more than {MOST_LINES:,} lines")
        value = json_of(text, _OUTPUT)
        key = next((key for key in _KINDS if isinstance(value, dict) and key in value), None)
        if key is not None:
            found[key].append(checked(_KINDS[key], value, _OUTPUT))
        else:
            rest = checked(_Rest, value, _OUTPUT)
            error, done = rest.error or error, rest.done or done
    gpus, pairs, xids, lost = (tuple(lines) for lines in found.values())
    return Links(gpus=gpus, pairs=pairs, xids=xids, lost=lost, error=error, done=done or bool(error))
