"""From what starts really took of their GPUs to the constant that plans should count with. Pure; docs/accuracy.md.

The constant is what an engine's own process takes of a GPU: all that is used, less weights, KV cache, and what the
planner counts for a step. It is never less than the most that was measured and a margin.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rigup.catalogue.overheads import MeasuredOverhead
from rigup.plan import Parallel
from rigup.service import EngineName

LEAST_STARTS = 3
# Beyond the most that was measured: what grows under load, and logs that are rounded to hundredths of a GiB.
MARGIN = 0.10
LEAST_MARGIN_MIB = 128


class _RecordModel(BaseModel):
    """What a record holds; keys of a later rigup are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class LogParts(_RecordModel):
    """What the engine's log said of one GPU, MiB; None for what it did not say."""

    weights_mib: float | None = None
    kv_cache_mib: float | None = None
    graphs_mib: float | None = None


class StartedGpu(_RecordModel):
    """One GPU of a start, MiB: as planned, and `measured_mib` as NVML had it, with what the driver reserves."""

    name: str
    capacity_mib: int
    weights_mib: int
    kv_cache_mib: int
    overhead_mib: int
    measured_mib: int
    graphs_counted: bool = False
    parts: LogParts = LogParts()

    @property
    def planned_mib(self) -> int:
        """All that the plan counted."""
        return self.weights_mib + self.kv_cache_mib + self.overhead_mib


class StartRecord(_RecordModel):
    """One start of a service.

    runtime_mib: the constant that its plan counted; driver_mib: for the driver's branch, in older records. fraction:
    the part of a GPU that vLLM took at most; None elsewhere, and where the cache was given its size.
    """

    host: str
    service: str
    when: str
    engine: EngineName
    version: str
    parallel: Parallel
    fraction: float | None = None
    runtime_mib: int
    driver_mib: int = 0
    gpus: tuple[StartedGpu, ...] = Field(min_length=1)


Kind = tuple[EngineName, str, str, int, Parallel]


@dataclass(frozen=True)
class Comparison:
    """Means over all GPUs of all starts, MiB; `worst_mib` is the error that is furthest from nothing.

    An error is what was measured less what was predicted.
    """

    predicted_mib: float
    measured_mib: float
    worst_mib: float

    @property
    def error_mib(self) -> float:
        """By how much the prediction was off, on average."""
        return self.measured_mib - self.predicted_mib

    @property
    def error_percent(self) -> float:
        """The same, as a part of what was predicted."""
        return 100 * self.error_mib / self.predicted_mib if self.predicted_mib else 0.0


@dataclass(frozen=True)
class Calibration:
    """What the starts of one kind say. A part that no log told of is None.

    runtime_mib: the constant that the last start's plan counted. needed_mib: the most that a start needed in its place;
    None where none can be used. wanted_mib: the constant that there should be; None with the reason in `why_not`.
    """

    kind: Kind
    starts: int
    first: str
    last: str
    weights: Comparison | None
    kv_cache: Comparison | None
    overhead: Comparison | None
    total: Comparison
    runtime_mib: int
    needed_mib: int | None
    wanted_mib: int | None
    why_not: str
    left_out: tuple[str, ...]

    @property
    def entry(self) -> MeasuredOverhead | None:
        """As a catalogue has it, with its source; None where there is nothing to count with."""
        if self.wanted_mib is None or self.needed_mib is None:
            return None
        engine, version, gpu, gpus, parallel = self.kind
        when = self.first if self.first == self.last else f"{self.first} to {self.last}"
        source = (
            f"measured on {self.starts} starts, {when}: at most {self.needed_mib:,} MiB, plus "
            f"{self.wanted_mib - self.needed_mib:,} MiB of margin"
        )
        return MeasuredOverhead(
            engine=engine,
            version=version,
            gpu=gpu,
            gpus=gpus,
            **parallel.model_dump(),
            runtime_mib=self.wanted_mib,
            sources={"runtime_mib": source},
        )


def read_starts(records: Iterable[dict[str, Any]]) -> list[StartRecord]:
    """The starts that records of applies hold; what is not as rigup keeps it is passed over."""
    found = []
    for record in records:
        memory = record.get("memory")
        for service, kept in memory.items() if isinstance(memory, dict) else ():
            if not isinstance(kept, dict):
                continue
            about = {"host": record.get("host"), "service": service, "when": record.get("when")}
            try:
                found.append(StartRecord.model_validate(kept | about))
            except ValidationError:
                continue
    return found


def calibrate(starts: Iterable[StartRecord]) -> list[Calibration]:
    """One calibration for each kind of GPU in each kind of start, in a fixed order."""
    kinds: dict[Kind, list[StartRecord]] = {}
    for start in starts:
        for name in {gpu.name for gpu in start.gpus}:
            kind = start.engine, start.version, name, len(start.gpus), start.parallel
            kinds.setdefault(kind, []).append(start)
    ordered = sorted(kinds.items(), key=lambda item: (*item[0][:4], tuple(item[0][4].model_dump().values())))
    return [_calibration(kind, sorted(found, key=lambda start: start.when)) for kind, found in ordered]


def _calibration(kind: Kind, starts: Sequence[StartRecord]) -> Calibration:
    used, left_out, needs = [], [], []
    for start in starts:
        gpus = [gpu for gpu in start.gpus if gpu.name == kind[2]]
        if why := next((why for gpu in gpus if (why := _unusable(start, gpu))), ""):
            left_out.append(f"{start.host}, {start.service}, {start.when}: {why}")
            continue
        used.append(start)
        needs += [runtime_needed(start, gpu) for gpu in gpus]
    needed = math.ceil(max(0.0, *needs)) if needs else None
    enough = len(used) >= LEAST_STARTS
    said = f"{len(used)} start{'s' if len(used) != 1 else ''} of this kind, but {LEAST_STARTS} are needed"
    shown = used or starts
    pairs = [gpu for start in shown for gpu in start.gpus if gpu.name == kind[2]]
    total = _compared(pairs, lambda gpu: gpu.planned_mib, lambda gpu: gpu.measured_mib)
    assert total is not None
    return Calibration(
        kind=kind,
        starts=len(used),
        first=shown[0].when[:10],
        last=shown[-1].when[:10],
        weights=_compared(pairs, lambda gpu: gpu.weights_mib, lambda gpu: gpu.parts.weights_mib),
        kv_cache=_compared(pairs, lambda gpu: gpu.kv_cache_mib, lambda gpu: gpu.parts.kv_cache_mib),
        overhead=_compared(pairs, lambda gpu: gpu.overhead_mib, _overhead_of(kind[0])),
        total=total,
        runtime_mib=starts[-1].runtime_mib,
        needed_mib=needed,
        wanted_mib=with_margin(needed) if enough and needed is not None else None,
        why_not="" if enough else said,
        left_out=tuple(left_out),
    )


def with_margin(needed: int) -> int:
    """The constant for what was needed at most, MiB."""
    return needed + max(LEAST_MARGIN_MIB, math.ceil(MARGIN * needed))


def runtime_needed(start: StartRecord, gpu: StartedGpu) -> float:
    """MiB that the constant had to be for this GPU. The less of two figures for weights counts, so that it is enough.

    llama.cpp takes the buffers of a step when it starts, so they are in what was measured. vLLM and SGLang give most of
    theirs back until there is work: then nothing is taken off for them. vLLM measures its own peak, and what is left of
    its part of the GPU is the cache; older ones do not count their CUDA graphs in that.
    """
    weights, cache = _weights(gpu), _cache(start, gpu)
    step = max(gpu.overhead_mib - start.runtime_mib, 0)
    idle = gpu.measured_mib - weights - cache
    if start.engine == "llama.cpp":
        return idle - step
    needed = idle - start.driver_mib
    if start.engine == "vllm" and start.fraction is not None:
        beyond = 0.0 if gpu.graphs_counted else gpu.parts.graphs_mib or 0.0
        needed = max(needed, gpu.capacity_mib * start.fraction - weights - cache + beyond - step)
    return needed


def _unusable(start: StartRecord, gpu: StartedGpu) -> str:
    """Why a GPU of a start says nothing of the constant; "" where it does."""
    if start.engine != "llama.cpp" and gpu.parts.kv_cache_mib is None:
        return "the engine's log does not say how large its KV cache is"
    if gpu.measured_mib < _weights(gpu) + _cache(start, gpu):
        return "less memory is in use than weights and KV cache alone should take"
    return ""


def _weights(gpu: StartedGpu) -> float:
    said = gpu.parts.weights_mib
    return gpu.weights_mib if said is None else min(said, gpu.weights_mib)


def _cache(start: StartRecord, gpu: StartedGpu) -> float:
    """vLLM and SGLang take what is left, so that only their logs know; llama.cpp takes what it is told to."""
    said = gpu.parts.kv_cache_mib
    if said is None:
        return gpu.kv_cache_mib
    return min(said, gpu.kv_cache_mib) if start.engine == "llama.cpp" else said


def _overhead_of(engine: EngineName) -> Callable[[StartedGpu], float | None]:
    """What is in use beside weights and KV cache. llama.cpp's may be taken as planned where its log is silent."""

    def overhead(gpu: StartedGpu) -> float | None:
        weights, cache = gpu.parts.weights_mib, gpu.parts.kv_cache_mib
        if engine == "llama.cpp":
            weights = gpu.weights_mib if weights is None else weights
            cache = gpu.kv_cache_mib if cache is None else cache
        return None if weights is None or cache is None else gpu.measured_mib - weights - cache

    return overhead


def _compared(
    gpus: Sequence[StartedGpu],
    predicted: Callable[[StartedGpu], float],
    measured: Callable[[StartedGpu], float | None],
) -> Comparison | None:
    pairs = [(predicted(gpu), said) for gpu in gpus if (said := measured(gpu)) is not None]
    if not pairs:
        return None
    worst = max((said - planned for planned, said in pairs), key=abs)
    return Comparison(fmean(planned for planned, _ in pairs), fmean(said for _, said in pairs), worst)
