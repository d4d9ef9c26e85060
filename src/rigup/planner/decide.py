"""From a question to a decision: the best possibility as a plan, or a refusal with every reason and what would fit."""

from __future__ import annotations

from dataclasses import dataclass

from rigup.catalogue.catalogue import Catalogue
from rigup.lock import Lock
from rigup.plan import Finding, Plan
from rigup.planner.alternatives import more_hosts, purchase, runners_up, would_fit
from rigup.planner.assembly import assembled, refused
from rigup.planner.candidate import Candidate
from rigup.planner.choice import allowed_context, ranked
from rigup.planner.driver import driver_floor, driver_plan, driver_refusals
from rigup.planner.enumeration import Question
from rigup.planner.locked import asked
from rigup.planner.moe_config import locked_otherwise
from rigup.planner.survey import Rejected, Survey, survey
from rigup.rig import Rig
from rigup.service import Service


@dataclass(frozen=True, slots=True)
class Decision:
    """A plan without its command, and the candidate that it is; None if the plan is a refusal."""

    plan: Plan
    candidate: Candidate | None


def decide(host: str, group: str, rig: Rig, service: Service, catalogue: Catalogue, lock: Lock) -> Decision:
    """Decides for one service on one rig. The same input always gives the same decision.

    Raises InputError, beginning with `services.<name>.<key>`, for a name that the catalogue or the rig does not have.
    """
    question = asked(rig, service, catalogue, lock)
    found = survey(question)
    if not found.fitting:
        return Decision(_refusal(host, group, question, found, catalogue, lock), None)
    order = ranked(found.fitting)
    winner = order[0].candidate
    if service.context is None:
        winner = allowed_context(winner)
    needs = winner.release.cuda_needs
    floor = driver_floor(rig, needs.driver if needs else 0)
    driver = driver_plan(rig, lock, floor)
    if findings := (*driver_refusals(rig, driver), *locked_otherwise(winner, lock)):
        return Decision(refused(host, group, question, findings, ()), None)
    made = assembled(host, group, winner, lock)
    found_besides = {"alternatives": runners_up(order, found, winner), "driver": driver, "driver_floor": floor}
    return Decision(made.model_copy(update=found_besides), winner)


def _refusal(host: str, group: str, question: Question, found: Survey, catalogue: Catalogue, lock: Lock) -> Plan:
    alternatives = would_fit(question, catalogue, lock)
    findings = _findings(question, found)
    if not alternatives:
        advice = purchase(question, catalogue, lock)
        findings = tuple(
            finding.model_copy(update={"hint": advice}) if finding.rule in ("gpu-memory", "gpu-required") else finding
            for finding in findings
        )
    elif any(finding.rule == "gpu-memory" for finding in findings):
        over_hosts = "".join(f"; or {offer}" for offer in more_hosts(question, catalogue, lock))
        findings = tuple(
            finding.model_copy(update={"hint": finding.hint + over_hosts}) if finding.rule == "gpu-memory" else finding
            for finding in findings
        )
    return refused(host, group, question, findings, alternatives)


def _findings(question: Question, found: Survey) -> tuple[Finding, ...]:
    """The reasons of the possibility that came nearest, all of them; or why there was none."""
    if found.rejected:
        return nearest(found.rejected).findings()
    service, model = question.service, question.resolved.model
    if not question.resolved.gpu_indices:
        engine = question.resolved.engines[0][0].title
        return (
            Finding(
                rule="gpu-required",
                message=f"{engine} needs a GPU and this rig has none",
                hint="use llama.cpp, or a rig with GPUs",
                source="vLLM and SGLang wheels are built for CUDA",
            ),
        )
    what = service.checkpoint or service.quant or model.name
    engines = " or ".join(f"{engine.title} {release.version}" for engine, release in question.resolved.engines)
    return (
        Finding(
            rule="engine-checkpoint",
            message=f"no checkpoint of {what} in the catalogue loads in {engines}",
            hint="leave the engine open, or name another version or checkpoint",
            source="catalogue: minimum_versions of the checkpoints",
        ),
    )


def nearest(rejected: tuple[Rejected, ...]) -> Rejected:
    """The rejected possibility with the fewest and smallest reasons; the first of equals."""
    return min(rejected, key=lambda entry: entry.rank)
