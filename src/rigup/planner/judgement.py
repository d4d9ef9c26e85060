"""Asks the rules about a candidate: quickly whether any refuses, or everything that they have to say."""

from __future__ import annotations

from rigup.planner.candidate import Candidate
from rigup.planner.rules import REFUSING


def is_refused(candidate: Candidate) -> bool:
    """Whether any rule that the service does not silence refuses this candidate.

    Quicker than asking for all that is wrong.
    """
    allowed = candidate.service.allow
    return any(rule.id not in allowed and next(iter(rule.check(candidate)), None) for rule in REFUSING)
