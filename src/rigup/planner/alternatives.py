"""What else there is: why runners-up lost, what the choice gave up, what fits or to buy instead of a refusal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rigup.catalogue.gpu_names import short_name
from rigup.plan import Alternative
from rigup.planner.candidate import Candidate
from rigup.planner.choice import Score, chosen, losing_reason, ranked, values, with_largest_context
from rigup.planner.enumeration import PlanningRequest
from rigup.planner.inputs.locked import planning_request
from rigup.planner.memory.fit import Shortfall
from rigup.planner.memory.host import host_gib_for
from rigup.planner.memory.weights import bits_per_weight
from rigup.planner.offload import experts_in_words
from rigup.planner.survey import Survey, allowed, survey
from rigup.rig import Rig
from rigup.service import Service
from rigup.units import bytes_text

_MOST = 4
_MOST_ADDED_GPUS = 8
_MOST_HOSTS = 4
_PLENTY_GIB = 4096.0
# A difference in speed that is worth a sentence: an estimate is off by a fifth on average.
_FASTER = 1.25
_FINER_BITS = 0.25
# What belongs to one engine or one placement, and means nothing once that is left open: each key at its default.
_OF_PLACEMENT = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel", "kv_cache_type")
_OF_ENGINE = (*_OF_PLACEMENT, "engine", "version", "build", "flags", "environment")
_PLACEMENT_KEYS = {key: Service.model_fields[key].get_default() for key in _OF_PLACEMENT}
_ENGINE_KEYS = {key: Service.model_fields[key].get_default() for key in _OF_ENGINE}


def runners_up(order: tuple[Score, ...], found: Survey, winner: Candidate) -> tuple[Alternative, ...]:
    """The next best of each other engine and checkpoint with why it lost, then what is better but does not fit."""
    best: dict[tuple[str, str], Score] = {}
    for entry in order:
        best.setdefault(_pair(entry.candidate), entry)
    lost = [entry for pair, entry in best.items() if pair != _pair(winner)][:_MOST]
    listed = [_alternative(entry.candidate, losing_reason(entry, order[0])) for entry in lost]
    return (*listed, *_too_large(found, winner, set(best)))


def _too_large(found: Survey, winner: Candidate, fitting: set[tuple[str, str]]) -> Iterator[Alternative]:
    """The nearest miss among the checkpoints with more bits a weight than the winner."""
    bits = bits_per_weight(winner.checkpoint, winner.model)
    near: dict[tuple[str, str], Shortfall] = {}
    for entry in found.rejected:
        pair, short = _pair(entry.candidate), entry.shortfall
        better = bits_per_weight(entry.candidate.checkpoint, winner.model) > bits
        if short is None or pair in fitting or not better or not short.missing_mib:
            continue
        if pair not in near or short.missing_mib < near[pair].missing_mib:
            near[pair] = short
    nearest = sorted(near.values(), key=lambda short: short.missing_mib)
    for short in islice((short for short in nearest if allowed(short.candidate) is not None), 1):
        yield _alternative(short.candidate, f"does not fit: needs {short.missing_mib:,} MiB more GPU memory")


def _pair(candidate: Candidate) -> tuple[str, str]:
    return candidate.engine.name, candidate.checkpoint.label


def _alternative(candidate: Candidate, why: str) -> Alternative:
    return Alternative(
        engine=candidate.engine.name, checkpoint=candidate.checkpoint.label, context=candidate.context, why=why
    )


def traded(order: Sequence[Score]) -> tuple[str, ...]:
    """Sentences about what the best candidate gives up, () if nothing. order: not empty, the best first."""
    winner = order[0]
    # A preference does not bring offload, pruning or a small cache.
    rivals = [other for other in order[1:] if values(other.necessities) <= values(winner.necessities)]
    return tuple(dict.fromkeys((*_finer(winner, rivals), *_faster(winner, rivals))))


def _finer(winner: Score, rivals: Sequence[Score]) -> Iterator[str]:
    best = max(rivals, key=lambda other: other.bits, default=winner)
    if best.bits - winner.bits < _FINER_BITS or winner.candidate.service.prefer == "quality":
        return
    slower = f", {winner.speed / best.speed:.1f} times slower" if winner.speed > best.speed * _FASTER else ""
    yield (
        f"{_name(best)} has {best.bits - winner.bits:.1f} bits a weight more ({best.quality.level}{slower}): "
        'prefer = "quality" takes the most bits'
    )


def _faster(winner: Score, rivals: Sequence[Score]) -> Iterator[str]:
    taken = (other for other in rivals if not other.quality.degraded)
    best = max(taken, key=lambda other: other.speed, default=winner)
    if best.speed > winner.speed * _FASTER and winner.candidate.service.prefer != "speed":
        yield (
            f"{_name(best)} is estimated to be {best.speed / winner.speed:.1f} times as fast ({best.quality.level}): "
            'prefer = "speed" takes the fastest that is not degraded'
        )


def _name(score: Score) -> str:
    return f"{score.candidate.checkpoint.quant} on {score.candidate.engine.title}"


def would_fit(request: PlanningRequest) -> tuple[Alternative, ...]:
    """What fits on this rig if one thing after another is left open, nearest to what was asked first."""
    found: dict[tuple[str, str, int], Alternative] = {}
    before = None
    for service, why in _relaxations(request):
        if service == before:
            continue
        before, nothing_new = service, service == request.service
        best = None if nothing_new else _best(request, service)
        if best is None:
            best = _best(request, service.model_copy(update={"context": None}))
            why = "a shorter context" if nothing_new else f"{why} and a shorter context"
        if best is not None:
            found.setdefault((*_pair(best), best.context), _alternative(best, f"{why}: {described(best)}"))
    return tuple(found.values())[:_MOST]


def _relaxations(request: PlanningRequest) -> Iterator[tuple[Service, str]]:
    """Services that ask for less and less, each with what it gives up."""
    service = request.service
    open_engine = service.model_copy(update=_ENGINE_KEYS)
    yield service.model_copy(update={"kv_cache_type": "auto"}), "another KV cache type"
    yield service.model_copy(update=_PLACEMENT_KEYS), "another placement"
    yield open_engine, "another engine"
    yield open_engine.model_copy(update=_any_checkpoint(request)), "another quantisation"


def _any_checkpoint(request: PlanningRequest) -> dict[str, object]:
    return {"model": request.resolved.model.name, "checkpoint": None, "quant": None}


def _best(request: PlanningRequest, service: Service, rig: Rig | None = None) -> Candidate | None:
    """The best candidate for another service or rig, at the context it asks for or else the longest that fits."""
    found = _survey(request, service, rig or request.rig)
    if found.fitting:
        return chosen(ranked(found.fitting))
    return _shortened(found) if service.context is None else None


def _survey(request: PlanningRequest, service: Service, rig: Rig) -> Survey:
    return survey(planning_request(rig, service, request.catalogue, request.lock))


def _shortened(found: Survey) -> Candidate | None:
    """The possibility that holds most context, where none holds the default; the best of those that hold as much."""
    near = (r.candidate for r in found.rejected if r.shortfall and r.shortfall.kind == "context")
    short = (permitted for candidate in near if (permitted := allowed(candidate)) is not None)
    settled = tuple(larger for candidate in short if (larger := with_largest_context(candidate)) is not None)
    order = [entry.candidate for entry in ranked(settled)]
    return max(order, key=lambda candidate: candidate.context) if order else None


def described(candidate: Candidate) -> str:
    """One candidate in a few words: quantisation, engine, placement and context."""
    spread = candidate.parallel.text
    if not spread and len(candidate.gpu_indices) > 1:
        spread = f"over {len(candidate.gpu_indices)} GPUs"
    words = [candidate.checkpoint.quant, "on", candidate.engine.title, spread]
    words.append(f"with {candidate.context:,} tokens of {candidate.kv_cache_type} KV cache")
    if candidate.offloads_experts:
        words.append(f"and {experts_in_words(candidate)} in host memory")
    if candidate.cpu_offload_gib:
        words.append(f"and {candidate.cpu_offload_gib} GiB of each GPU's weights in host memory")
    return " ".join(word for word in words if word)


def purchase(request: PlanningRequest) -> str:
    """One line on what to add to the rig so that the model can be served, for when nothing fits."""
    if offers := [*_more_gpus(request), *more_hosts(request), *_more_host_memory(request)]:
        return "; or ".join(offers)
    smallest = min(request.resolved.checkpoints, key=lambda entry: entry.bytes)
    return f"nothing fits: the smallest checkpoint, {smallest.label}, has {bytes_text(smallest.bytes)} of weights"


def _more_gpus(request: PlanningRequest) -> Iterator[str]:
    rig = request.rig
    wanted = request.service.model_copy(update={**_ENGINE_KEYS, **_any_checkpoint(request), "gpus": None})
    least = 1 if request.service.gpus is None else 0
    for added in range(least, _MOST_ADDED_GPUS + 1) if rig.gpus else ():
        larger = rig.model_copy(update={"gpus": (*rig.gpus, *(rig.gpus[-1],) * added)})
        best = _best(request, wanted, larger)
        if best is not None and not added:
            setting = f"services.{request.service.name}.gpus"
            yield f"give it all {len(rig.gpus)} GPUs of the rig ({setting}) to fit {described(best)}"
            return
        if best is not None:
            yield f"add {added} more {short_name(rig.gpus[-1].name)} to fit {described(best)}"
            return


def more_hosts(request: PlanningRequest) -> Iterator[str]:
    """The fewest hosts like this one, up to four, over which what was asked for fits."""
    wanted = request.service.model_copy(update={**_PLACEMENT_KEYS, "build": None})
    for hosts in range(request.rig.hosts_per_service + 1, _MOST_HOSTS + 1):
        over = request.rig.model_copy(update={"hosts_per_service": hosts})
        best = _best(request, wanted, over)
        if best is not None:
            yield f"serve it over {hosts} such hosts (rig.hosts_per_service = {hosts}) to fit {described(best)}"
            return


def _more_host_memory(request: PlanningRequest) -> Iterator[str]:
    """The least that the host would need to hold experts of a checkpoint that the service allows.

    Nothing where GPU and host share the memory: there is none besides to have more of.
    """
    if request.rig.hosts_per_service > 1 or any(gpu.unified_memory for gpu in request.rig.gpus):
        return
    plenty = request.rig.model_copy(update={"host_memory_gib": _PLENTY_GIB})
    service = request.service.model_copy(update=_ENGINE_KEYS)
    fitting = _survey(request, service, plenty).fitting
    if fitting:
        least = min(fitting, key=lambda candidate: candidate.host_memory_mib)
        needed = host_gib_for(least.host_memory_mib - (least.prompt_cache_mib or 0))
        yield f"provide {needed} GiB of host memory (rig.host_memory_gib) to fit {described(least)}"
