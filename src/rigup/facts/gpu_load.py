"""What NVML said of GPUs while they worked, as `load_of_gpus` of the benchmark's client sums it up."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rigup.facts.bounds import json_of
from rigup.facts.host_output import MOST_GPUS, Count, HostOutput, Line, checked

# an integer stays an integer
_Number = Annotated[int | float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Share = Annotated[int | float, Field(ge=0, le=1, allow_inf_nan=False)]
MOST_REASONS = 100


class GpuLoad(HostOutput):
    """One GPU over the samples of a load; None for what it does not report.

    clock_mhz: of its multiprocessors, on average. highest_clock_mhz: what the card can. held_back: by reason, the share
    of samples in which the clock was held down.
    """

    gpu: Count
    name: Line
    power_w: _Number | None
    power_most_w: _Number | None
    memory_most_mib: _Number | None
    temperature_most_c: _Number | None
    clock_mhz: _Number | None = None
    clock_least_mhz: _Number | None = None
    highest_clock_mhz: _Number | None = None
    held_back: Annotated[dict[Line, _Share], Field(max_length=MOST_REASONS)] | None = None


class HostLoad(HostOutput):
    """A load on a host's GPUs. by: what kept them busy. seconds: of the window in which they were watched."""

    by: Line
    seconds: _Number
    gpus: Annotated[list[GpuLoad], Field(max_length=MOST_GPUS)]


class _Products(HostOutput):
    error: Line = ""
    seconds: _Number = 0
    gpus: Annotated[list[GpuLoad], Field(max_length=MOST_GPUS)] = []


def products(text: str, by: str) -> HostLoad | str:
    """Parses the output of multiply_matrices.py; a text is its error. Raises Unreadable for anything else."""
    document = "the output of multiply_matrices.py"
    found = checked(_Products, json_of(text, document), document)
    return found.error or HostLoad(by=by, seconds=found.seconds, gpus=found.gpus)
