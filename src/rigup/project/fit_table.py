"""Which models a rig can serve, each as the planner decides where only the model is named; and which rigs one model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.model import Model
from rigup.catalogue.quality import JudgedQuality, quality_of
from rigup.lock import Lock
from rigup.plan import Speed
from rigup.planner.decide import decide
from rigup.planner.decision import Decision
from rigup.planner.inputs.locked import planning_request
from rigup.planner.memory.host import offloads
from rigup.rig import Gpu, Rig
from rigup.service import Preference, Service

COUNTS = (1, 2, 4, 8)
_NOTHING = Speed(low=0.0, high=0.0)


@dataclass(frozen=True, slots=True)
class Fit:
    """One model on one rig. decision: None where it does not fit; `reason` then says why, in a few words."""

    rig: Rig
    model: Model
    decision: Decision | None
    reason: str = ""

    @property
    def quality(self) -> JudgedQuality | None:
        """The level of the checkpoint; None where the model does not fit."""
        if self.decision is None:
            return None
        candidate = self.decision.candidate
        return quality_of(candidate.checkpoint, self.model, candidate.catalogue.qualities)

    @property
    def context(self) -> int:
        """The tokens of one request; 0 where the model does not fit."""
        return self.decision.candidate.context if self.decision else 0

    @property
    def speed(self) -> Speed:
        """Estimated decode tokens per second of one request; zeros where the model does not fit."""
        return (self.decision.decode_tokens_per_second if self.decision else None) or _NOTHING

    @property
    def middle_speed(self) -> float:
        """The middle of the estimate, by which the planner compares, too."""
        return (self.speed.low + self.speed.high) / 2

    @property
    def gpu_count(self) -> int:
        """The GPUs of the rig, on all hosts of a service."""
        return len(self.rig.gpus) * self.rig.hosts_per_service

    @property
    def needs_host_memory(self) -> bool:
        """Whether weights that belong to a GPU are kept in host memory."""
        return self.decision is not None and offloads(self.decision.candidate)

    @property
    def spread(self) -> str:
        """How the model is spread: "TP4 EP4", "2 GPUs" for layers over GPUs, "CPU"."""
        if self.decision is None:
            return ""
        candidate = self.decision.candidate
        count = len(candidate.gpu_indices)
        if count and candidate.parallel.text:
            return candidate.parallel.text
        return f"{count} GPU{'s' if count > 1 else ''}" if count else "CPU"


@dataclass(frozen=True, slots=True)
class FitFilter:
    """What a model that fits must reach to be listed.

    context: tokens. speed: tokens per second, at the low end of the estimate. commercial: whether the license must
    be known to allow commercial use.
    """

    context: int = 0
    speed: float = 0.0
    commercial: bool = False

    def accepts(self, fit: Fit) -> bool:
        """Whether a model fits and reaches all of it."""
        return fit.decision is not None and not self.missed_by(fit)

    def missed_by(self, fit: Fit) -> str:
        """What a model that fits does not reach, in a few words; "" if it reaches all of it."""
        missed = []
        if fit.context < self.context:
            missed.append(f"its context is {fit.context:,} tokens")
        if fit.speed.low < self.speed:
            missed.append(f"it may be as slow as {fit.speed.low:.1f} tokens/s")
        if self.commercial and fit.model.commercial is not True:
            unknown = fit.model.commercial is None
            missed.append("its license is not known to allow commercial use" if unknown else "not for commercial use")
        return "; ".join(missed)

    @property
    def text(self) -> str:
        """What is wanted, in a few words; "" where all is listed."""
        parts = [f"{self.context:,} tokens of context"] if self.context else []
        parts += [f"{self.speed:g} tokens/s"] if self.speed else []
        listed = [f"at least {part}" for part in parts] + ["commercial use"] * self.commercial
        return ", ".join(listed)


def fit_of(rig: Rig, model: Model, catalogue: Catalogue, lock: Lock, context: int = 0) -> Fit:
    """One model on one rig.

    context: tokens. Where the planner's own choice holds less, it decides again for a service that asks for as many.
    """
    if model.name not in catalogue.checkpoints_by_model:
        return Fit(rig, model, None, "the catalogue has no checkpoint of it")
    service = Service(name="fit", model=model.name)
    outcome = decide(planning_request(rig, service, catalogue, lock), advise=False)
    if not isinstance(outcome, Decision):
        message = outcome.findings[0].message
        return Fit(rig, model, None, message.partition(" on ")[2].partition(": ")[2] or message)
    if outcome.candidate.context < context <= model.context:
        asking = planning_request(rig, service.model_copy(update={"context": context}), catalogue, lock)
        longer = decide(asking, advise=False)
        outcome = longer if isinstance(longer, Decision) else outcome
    return Fit(rig, model, outcome)


def fits_of(rig: Rig, catalogue: Catalogue, lock: Lock, context: int = 0) -> tuple[Fit, ...]:
    """Every model of the catalogue but EAGLE heads on one rig, in the catalogue's order. context: as for `fit_of`."""
    return tuple(fit_of(rig, model, catalogue, lock, context) for model in catalogue.served)


def smallest_of(
    model: Model, wanted: FitFilter, catalogue: Catalogue, lock: Lock, host_memory_gib: float | None = None
) -> tuple[Fit, ...]:
    """For each GPU of the catalogue the smallest of COUNTS that serves the model as wanted; else the largest count.

    host_memory_gib: of each host.
    """
    found = []
    for gpu in catalogue.gpus:
        for count in COUNTS:
            fit = fit_of(rig_with(gpu, count, host_memory_gib), model, catalogue, lock, wanted.context)
            if wanted.accepts(fit):
                break
        found.append(fit)
    return tuple(found)


def rig_with(gpu: Gpu, count: int, host_memory_gib: float | None) -> Rig:
    """A rig of equal GPUs. One that shares its host's memory is the only one there, so that more are more hosts."""
    if gpu.unified_memory:
        return Rig(gpus=(gpu,), host_memory_gib=host_memory_gib, hosts_per_service=count)
    return Rig(gpus=(gpu,) * count, host_memory_gib=host_memory_gib)


def in_order(fits: Iterable[Fit], sort: Preference) -> list[Fit]:
    """Best first: by level of quality and then speed, by speed, or by context; equals by the name of the model."""

    def key(fit: Fit) -> tuple[float, ...]:
        rank = fit.quality.rank if fit.quality else 0
        return {
            "quality": (rank, -fit.middle_speed),
            "speed": (-fit.middle_speed, rank),
            "context": (-fit.context, rank, -fit.middle_speed),
        }[sort]

    return sorted(fits, key=lambda fit: (key(fit), fit.model.name.lower()))


def least_to_buy(fits: Iterable[Fit]) -> list[Fit]:
    """The fewest GPUs first; of as many, those with the least memory in all; one with its host's memory comes last."""

    def key(fit: Fit) -> tuple[int, float]:
        return fit.gpu_count, sum(gpu.memory_mib or float("inf") for gpu in fit.rig.gpus)

    return sorted(fits, key=key)
