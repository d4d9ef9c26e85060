"""Turns a request into a decision: the best candidate, or a refusal with every reason and with what would fit."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.catalogue.engines import EngineVersion
from rigup.plan import Finding
from rigup.planner.abilities import loads, unsupported
from rigup.planner.alternatives import more_hosts, purchase, runners_up, traded, would_fit
from rigup.planner.assembly import build_of, checkpoint_of, toolkit_of
from rigup.planner.choice import chosen, ranked
from rigup.planner.decision import Decision, Refusal
from rigup.planner.drafting.offer import speculative_text
from rigup.planner.driver import (
    compiler_warnings,
    driver_floor,
    driver_plan,
    driver_refusals,
    library_warnings,
    repository_refusals,
    toolkit_warnings,
)
from rigup.planner.enumeration import PlanningRequest
from rigup.planner.evidence import evidence_of
from rigup.planner.moe_config import against_the_lock, locked_otherwise, moe_config
from rigup.planner.rules import check
from rigup.planner.rules.abilities import model_support
from rigup.planner.speed import decode_speed
from rigup.planner.survey import Rejected, Survey, survey


def decide(request: PlanningRequest, advise: bool = True) -> Decision | Refusal:
    """Decides for one service on one rig. Equal input gives an equal decision.

    advise: whether a refusal says what would fit instead, which takes longer than the decision.
    """
    rig, service, lock = request.rig, request.service, request.lock
    found = survey(request)
    if not found.fitting:
        return _refusal(request, found) if advise else Refusal(rig, service, _findings(request, found))
    order = ranked(found.fitting)
    winner = chosen(order)
    needs = winner.release.cuda_needs
    floor = driver_floor(rig, needs.driver if needs else 0)
    driver = driver_plan(rig, lock, floor)
    build = build_of(winner, lock)
    absent = repository_refusals(rig.os or "", driver, toolkit_of(build))
    if findings := (*driver_refusals(rig, driver), *absent, *locked_otherwise(winner, lock)):
        return Refusal(rig, service, findings)
    judged = check(winner)
    return Decision(
        candidate=winner,
        build=build,
        checkpoint=checkpoint_of(winner.checkpoint, lock),
        draft=checkpoint_of(winner.draft.checkpoint, lock) if winner.draft and winner.draft.checkpoint else None,
        moe_config=against_the_lock(moe_config(winner), lock),
        driver=driver,
        driver_floor=floor,
        decode_tokens_per_second=decode_speed(winner),
        decode_with_full_context=decode_speed(winner, tokens=winner.context),
        decode_at_concurrency=decode_speed(winner, service.concurrency) if service.concurrency > 1 else None,
        warnings=(*judged.warnings, *toolkit_warnings(build), *compiler_warnings(build), *library_warnings(build)),
        silenced=judged.silenced,
        alternatives=runners_up(order, found, winner),
        figures=evidence_of(winner, driver),
        quality=order[0].quality.text,
        traded=traded(order),
        speculative=speculative_text(winner),
    )


def _refusal(request: PlanningRequest, found: Survey) -> Refusal:
    alternatives, findings = would_fit(request), _findings(request, found)
    hints: dict[str, str] = {}
    if not alternatives:
        hints = dict.fromkeys(("gpu-memory", "gpu-required"), purchase(request))
    elif lacking := next((finding for finding in findings if finding.rule == "gpu-memory"), None):
        hints["gpu-memory"] = "; or ".join([lacking.hint, *more_hosts(request)])
    hinted = (each.model_copy(update={"hint": hints.get(each.rule, each.hint)}) for each in findings)
    return Refusal(request.rig, request.service, tuple(hinted), alternatives)


def _unsupported(request: PlanningRequest, release: EngineVersion) -> tuple[str, str] | None:
    """Why a release has the architecture of none of the checkpoints, told of the first; None where it has one."""
    model, engines = request.resolved.model, request.catalogue.engines
    reasons = [unsupported(model, checkpoint, release, engines) for checkpoint in request.resolved.checkpoints]
    return None if None in reasons else reasons[0]


def _closest(rejected: Sequence[Rejected]) -> Rejected:
    """The nearest to fitting.

    Of those that rules alone refuse, the one that would be chosen among those with the fewest reasons against them.
    """
    nearest = min(entry.rank for entry in rejected)
    equal = [entry for entry in rejected if entry.rank == nearest]
    if equal[0].shortfall is not None:
        return equal[0]
    reasons = [len(entry.findings()) for entry in equal]
    fewest = [entry for entry, count in zip(equal, reasons, strict=True) if count == min(reasons)]
    chosen = ranked(tuple(entry.candidate for entry in fewest))[0].candidate
    return next(entry for entry in fewest if entry.candidate is chosen)


def _findings(request: PlanningRequest, found: Survey) -> tuple[Finding, ...]:
    """All reasons of the candidate that came closest to fitting; or why there was no candidate."""
    if found.rejected:
        return _closest(found.rejected).findings()
    service, model = request.service, request.resolved.model
    reasons = [_unsupported(request, release) for _, release in request.resolved.engines]
    lacking = tuple(
        Finding(rule=model_support.id, message=reason[0], hint=reason[1], source=model_support.source)
        for reason in reasons
        if reason is not None
    )
    if len(lacking) == len(reasons) and model_support.id not in service.allow:
        return lacking
    loading = [
        engine
        for engine, release in request.resolved.engines
        if any(loads(each, release) and not release.lacks(model, each) for each in request.resolved.checkpoints)
    ]
    if loading and not request.resolved.gpu_indices:
        names = " and ".join(engine.title for engine in loading)
        runs_gguf = any(checkpoint.scheme == "gguf" for checkpoint in request.resolved.checkpoints)
        return (
            Finding(
                rule="gpu-required",
                message=f"{names} need{'s' if len(loading) == 1 else ''} a GPU and this rig has none",
                hint="use llama.cpp, or a rig with GPUs" if runs_gguf else "use a rig with GPUs",
                source="vLLM and SGLang wheels are built for CUDA",
            ),
        )
    what = service.checkpoint or service.quant or model.name
    engines = " or ".join(f"{engine.title} {release.version}" for engine, release in request.resolved.engines)
    return (
        Finding(
            rule="engine-checkpoint",
            message=f"no checkpoint of {what} in the catalogue loads in {engines}",
            hint="leave the engine open, or name another version or checkpoint",
            source="catalogue: minimum_versions of the checkpoints",
        ),
    )
