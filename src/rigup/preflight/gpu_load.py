"""Judges what NVML said of GPUs under load. Pure. Source: nvml.h, clocks event reasons."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.facts.gpu_load import GpuLoad, HostLoad
from rigup.facts.probe import Probe
from rigup.preflight.links import COOLING, SLOWED, LinkFinding

_CAP = "power cap"


def load_findings(load: HostLoad, probe: Probe) -> Iterator[LinkFinding]:
    """Everything to be said of a host's GPUs under load."""
    limits = {gpu.index: gpu.power.limit_w for gpu in probe.gpus}
    if not load.gpus:
        yield LinkFinding(False, "NVML reported nothing about the GPUs during the load")
    for gpu in load.gpus:
        yield from _gpu(gpu, limits.get(gpu.gpu))


def _gpu(gpu: GpuLoad, limit_w: float | None) -> Iterator[LinkFinding]:
    held = gpu.held_back or {}
    if slowed := {reason: share for reason, share in held.items() if reason in SLOWED and share}:
        at = f" at up to {gpu.temperature_most_c:g} °C" if gpu.temperature_most_c is not None else ""
        most = max(slowed.values())
        yield LinkFinding(
            True,
            f"GPU {gpu.gpu}: slowed down in {most:.0%} of the load{at}: {', '.join(slowed)}{_clocks(gpu)}",
            COOLING,
        )
    if share := held.get(_CAP):
        limit = f" of {limit_w:g} W" if limit_w is not None else ""
        yield LinkFinding(False, f"GPU {gpu.gpu}: at its power limit{limit} in {share:.0%} of the load{_clocks(gpu)}")
    if gpu.held_back is None:
        yield LinkFinding(False, f"GPU {gpu.gpu}: NVML does not report what limits its clock")


def _clocks(gpu: GpuLoad) -> str:
    if gpu.clock_mhz is None:
        return ""
    return f"; {gpu.clock_mhz:.0f} MHz" + (f" of {gpu.highest_clock_mhz:.0f}" if gpu.highest_clock_mhz else "")
