"""Sorts the candidates of a request into those that fit and those that do not, each with its reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from rigup.catalogue.quality import NEAR, quality_of
from rigup.plan import Finding
from rigup.planner.attempts import fit_memory
from rigup.planner.candidate import Candidate
from rigup.planner.enumeration import PlanningRequest, candidates, insists
from rigup.planner.memory.fit import Shortfall
from rigup.planner.memory.remedies import for_context, for_sizes, for_weights
from rigup.planner.memory.weights import weights_of
from rigup.planner.multinode.layouts import indivisible_layout
from rigup.planner.parallelism import with_expert_parallel
from rigup.planner.rules import is_refused, refusals
from rigup.planner.speed import decode_speed
from rigup.units import GIB, MIB

_MEMORY_SOURCE = "docs/memory.md"
# Tokens a second that nobody waits for, at the high end of the estimate; how many times slower a better level may be.
# Judgements.
_HOPELESS, _SLOWER = 2, 2
# Shortfalls of the layout, which make it impossible to apply the rules.
_SHAPES = ("gpus", "partition", "hosts", "stages")
# The rule and the hint, or what makes it, of each kind of shortfall.
_FINDINGS: dict[str, tuple[str, str | Callable[[Candidate], str]]] = {
    "weights": ("gpu-memory", for_weights),
    "context": ("gpu-memory", for_context),
    "host": ("host-memory", "declare or add host memory, or keep every weight in GPU memory"),
    "unknown": ("host-memory", "set rig.host_memory_gib"),
    "gpus": ("gpu-count", for_sizes),
    "sequences": ("state-blocks", ""),
    "partition": ("pipeline-partition", "leave the variable out: the plan works out a partition that fits"),
    "stages": ("pipeline-stages", "use a pipeline_parallel no larger than the number of layers"),
    "hosts": ("world-size", ""),
}


class Rejected(NamedTuple):
    """A candidate that cannot be served: it does not fit, or rules refuse it, or both.

    candidate: with its memory computed, if there is no shortfall.
    """

    candidate: Candidate
    shortfall: Shortfall | None

    def findings(self) -> tuple[Finding, ...]:
        """Every reason, those of the rules first."""
        shapeless = self.shortfall is not None and self.shortfall.kind in _SHAPES
        found = () if shapeless else refusals(allowed(self.candidate) or self.candidate)
        return (*found, memory_finding(self.shortfall)) if self.shortfall else found

    @property
    def refused(self) -> bool:
        """Whether rules refuse it, independently of its memory."""
        if self.shortfall is None:
            return True
        return self.shortfall.kind not in _SHAPES and allowed(self.candidate) is None

    @property
    def rank(self) -> tuple[int, int]:
        """How far it is from fitting; the smallest is the closest. A refusal counts more than missing memory."""
        weight = 2 * self.refused + (self.shortfall is not None)
        return weight, self.shortfall.missing_mib if self.shortfall else 0


class Survey(NamedTuple):
    """All candidates. `fitting` ones have their memory computed and pass the rules."""

    fitting: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]


def survey(request: PlanningRequest) -> Survey:
    """Tries everything in GPU memory; experts in host memory on request, or if nothing else fits.

    Where no checkpoint that is near the maker's own fits, those of a better level are tried with experts in host
    memory, which may take half the speed.
    """
    fitting: list[Candidate] = []
    rejected: list[Rejected] = []
    for candidate in candidates(request):
        outcome = _same_shortfall(candidate, rejected) or _tried(candidate)
        if isinstance(outcome, Rejected):
            rejected.append(outcome)
        else:
            fitting.append(outcome)
    if request.service.offload == "experts" or (request.service.offload == "auto" and not fitting):
        fitting += _offloaded(request, rejected)
    elif request.service.offload == "auto" and (best := min(map(_rank, fitting))) > NEAR:
        enough = max(map(_middle_speed, fitting)) / _SLOWER
        better = [entry for entry in rejected if _rank(entry.candidate) < best]
        fitting += [one for one in _offloaded(request, better) if _middle_speed(one) >= enough]
    return Survey(tuple(fitting), tuple(rejected))


def _same_shortfall(candidate: Candidate, rejected: list[Rejected]) -> Rejected | None:
    """The previous candidate's shortfall, if only the KV cache differs and the weights do not fit."""
    if not rejected or rejected[-1].shortfall is None or rejected[-1].shortfall.kind != "weights":
        return None
    if _layout(candidate) != _layout(rejected[-1].candidate):
        return None
    return Rejected(candidate, rejected[-1].shortfall._replace(candidate=candidate))


def _layout(candidate: Candidate) -> tuple[object, ...]:
    return id(candidate.checkpoint), candidate.engine.name, candidate.gpu_indices, candidate.parallel


def _tried(candidate: Candidate) -> Candidate | Rejected:
    settled = shape_error(candidate) or fit_memory(candidate)
    if isinstance(settled, Shortfall):
        return Rejected(candidate, settled)
    permitted = allowed(settled)
    if permitted is None or permitted is settled:
        return permitted or Rejected(settled, None)
    again = fit_memory(permitted)
    return Rejected(permitted, again) if isinstance(again, Shortfall) else again


def allowed(candidate: Candidate) -> Candidate | None:
    """The candidate if no rule refuses it, otherwise the same with expert parallelism; None if both are refused."""
    if not is_refused(candidate):
        return candidate
    spread = with_expert_parallel(candidate)
    return None if spread is None or is_refused(spread) else spread


def shape_error(candidate: Candidate) -> Shortfall | None:
    """Why the sizes that the service names are impossible: too few GPUs, or a partition that does not match."""
    parallel, asked = candidate.parallel, candidate.asked_partition
    ranks = parallel.tensor * parallel.pipeline * parallel.data
    if (
        candidate.hosts > 1
        and candidate.engine.name != "llama.cpp"
        and (reason := indivisible_layout(candidate)) is not None
    ):
        message, hint, source = reason
        return Shortfall(candidate, "hosts", 0, message, hint, source)
    on_cpu = not candidate.rig.gpus and ranks == candidate.hosts
    if candidate.engine.name != "llama.cpp" and ranks != len(candidate.gpu_indices) and not on_cpu:
        sizes = f"tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data}"
        there = len(candidate.gpu_indices)
        return Shortfall(candidate, "gpus", 0, f"{sizes} need {ranks} GPUs, but the service has {there}")
    layers, each = candidate.model.layers, len(candidate.local_gpus)
    if candidate.engine.name == "llama.cpp" and candidate.hosts > 1 and candidate.hosts * max(1, each) > layers:
        message = f"{candidate.hosts} hosts have more devices than {candidate.model.name} has layers ({layers})"
        return Shortfall(candidate, "stages", 0, message, "use fewer hosts: rig.hosts_per_service")
    if parallel.pipeline > layers:
        message = f"{parallel.pipeline} pipeline stages are more than the {layers} layers of {candidate.model.name}"
        hint = "" if candidate.service.pipeline_parallel else "use fewer hosts or GPUs, or set the sizes yourself"
        return Shortfall(candidate, "stages", 0, message, hint)
    if asked and (len(asked) != parallel.pipeline or sum(asked) != layers or min(asked) < 1):
        given = ",".join(str(count) for count in asked)
        message = f"the pipeline partition {given} does not divide {layers} layers among {parallel.pipeline} stages"
        return Shortfall(candidate, "partition", 0, message)
    return None


def _offloaded(request: PlanningRequest, rejected: list[Rejected]) -> Iterator[Candidate]:
    """Each candidate on all GPUs that only lacks GPU memory, with the smallest offload that makes it fit.

    If several differ only in the KV cache, takes the first: a smaller cache would not be better.
    """
    everything = request.resolved.gpu_indices
    found: Candidate | None = None
    for entry in rejected:
        short, candidate = entry.shortfall, entry.candidate
        if short is None or short.kind not in ("weights", "context") or candidate.local_gpus != everything:
            continue
        if not everything or (found is not None and _layout(found) == _layout(candidate)):
            continue
        settled = least_offload(short)
        permitted = allowed(settled) if settled is not None else None
        if permitted is not settled and permitted is not None:
            settled = least_offload(short._replace(candidate=permitted))
        if permitted is not None and settled is not None and not _is_hopeless(settled):
            found = candidate
            yield settled


def _rank(candidate: Candidate) -> int:
    return quality_of(candidate.checkpoint, candidate.model, candidate.catalogue.qualities).rank


def _middle_speed(candidate: Candidate) -> float:
    speed = decode_speed(candidate)
    return math.sqrt(speed.low * speed.high)


def _is_hopeless(candidate: Candidate) -> bool:
    """Whether weights that cross PCIe for every token leave nothing that anybody would wait for."""
    asked = insists(candidate.service)
    return not asked and candidate.cpu_offload_gib > 0 and decode_speed(candidate).high < _HOPELESS


def least_offload(shortfall: Shortfall) -> Candidate | None:
    """The candidate with the smallest offload that fits: experts of whole layers, or in vLLM, GiB of each GPU.

    None if the engine cannot offload, the rig does not declare its host memory, or the host memory is too small.
    """
    candidate = shortfall.candidate
    low, high, best, tight = 1, _most_offload(shortfall), None, None
    while low <= high:
        middle = (low + high) // 2
        settled = fit_memory(_offloading(candidate, middle))
        if isinstance(settled, Candidate):
            if settled.is_tight:
                tight, low = settled, middle + 1
            else:
                best, high = settled, middle - 1
        elif settled.kind == "host":
            high = middle - 1
        else:
            low = middle + 1
    return best or tight


def _most_offload(shortfall: Shortfall) -> int:
    """The largest possible offload, or 0 if the host has less memory than is missing."""
    candidate, host = shortfall.candidate, (shortfall.candidate.rig.host_memory_gib or 0) * GIB
    if candidate.offloads_experts:  # as the service says
        return 0
    if shortfall.missing_mib * MIB > host:
        return 0
    if candidate.engine.name == "llama.cpp" and candidate.parallel.tensor > 1:
        return 0
    if candidate.engine.name == "llama.cpp" and candidate.hosts == 1:
        weights = weights_of(candidate.checkpoint, candidate.model)
        moved = accumulate(layer.experts for layer in weights.layers)
        return sum(total <= host for total in moved) if weights.experts else 0
    if candidate.engine.name == "vllm" and not candidate.cpu_offload_gib:
        each = candidate.checkpoint.bytes * candidate.parallel.data / len(candidate.gpu_indices)
        return min(int(host / len(candidate.local_gpus) / GIB), math.ceil(each / GIB))
    return 0


def _offloading(candidate: Candidate, amount: int) -> Candidate:
    if candidate.engine.name == "llama.cpp":
        return replace(candidate, cpu_moe_layers=amount)
    return replace(candidate, cpu_offload_gib=amount)


def memory_finding(shortfall: Shortfall) -> Finding:
    """A shortfall as a finding that refuses."""
    rule, remedy = _FINDINGS[shortfall.kind]
    hint = shortfall.hint or (remedy if isinstance(remedy, str) else remedy(shortfall.candidate))
    return Finding(rule=rule, message=shortfall.message, hint=hint, source=shortfall.source or _MEMORY_SOURCE)
