"""Applies the rules to a candidate, only to find out whether any refuses it."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.planner.rules import REFUSING


def is_refused(candidate: Candidate) -> bool:
    """Whether any rule that the service does not silence refuses this candidate.

    Faster than collecting all reasons.
    """
    allowed = candidate.service.allow
    return any(rule.id not in allowed and next(iter(rule.check(candidate)), None) for rule in REFUSING)
