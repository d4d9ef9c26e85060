"""The planner's decision for one service on one rig: pure, without host names and command lines."""

from __future__ import annotations

from typing import NamedTuple

from rigup.plan import Alternative, Build, Checkpoint, DriverPlan, Evidence, Finding, MoeConfig, Speed
from rigup.planner.candidate import Candidate
from rigup.rig import Rig
from rigup.service import Service


class Decision(NamedTuple):
    """How to serve the service: the winning candidate, what the lock pins for it, and what the user should know.

    All but `candidate` are fields of `rigup.plan.Plan`, which explains them.
    """

    candidate: Candidate
    build: Build
    checkpoint: Checkpoint
    draft: Checkpoint | None
    moe_config: MoeConfig | None
    driver: DriverPlan | None
    driver_floor: int
    decode_tokens_per_second: Speed | None
    decode_with_full_context: Speed | None
    decode_at_concurrency: Speed | None
    warnings: tuple[Finding, ...]
    silenced: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    figures: tuple[Evidence, ...]
    quality: str = ""
    traded: tuple[str, ...] = ()
    speculative: str = ""


class Refusal(NamedTuple):
    """Why the service cannot be served on this rig, and what would fit instead."""

    rig: Rig
    service: Service
    findings: tuple[Finding, ...]
    alternatives: tuple[Alternative, ...] = ()
