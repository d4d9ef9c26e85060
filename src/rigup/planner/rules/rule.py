"""A rule: a named constraint with a source, which reads one candidate and reports what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from rigup.plan import Finding
from rigup.planner.candidate import Candidate

Severity = Literal["refuses", "warns"]
Complaint = tuple[str, str] | tuple[str, str, str]
Check = Callable[[Candidate], Iterator[Complaint]]


ENGINE_JUDGEMENT = "engine-judgement"
"""What `allow` names to have a plan started that its engine refuses on the host (rigup.operations.judgement)."""


class Rule(NamedTuple):
    """A constraint. `about` says in one line what it requires; `check` yields a message and a hint for each violation,
    and a third text if the violation has its own source.

    A rule that refuses makes the planner refuse the candidate; one that warns only informs. A service silences either
    by its id.
    """

    id: str
    severity: Severity
    about: str
    source: str
    check: Check

    def __call__(self, candidate: Candidate) -> tuple[Finding, ...]:
        """Every violation, as findings."""
        return tuple(
            Finding(rule=self.id, message=message, hint=hint, source=own[0] if own else self.source)
            for message, hint, *own in self.check(candidate)
        )


def refuses(rule_id: str, source: str) -> Callable[[Check], Rule]:
    """Turns a generator of complaints into a rule that refuses; its docstring becomes `about`."""
    return _decorator(rule_id, "refuses", source)


def warns(rule_id: str, source: str) -> Callable[[Check], Rule]:
    """Turns a generator of complaints into a rule that warns; its docstring becomes `about`."""
    return _decorator(rule_id, "warns", source)


def _decorator(rule_id: str, severity: Severity, source: str) -> Callable[[Check], Rule]:
    def decorate(check: Check) -> Rule:
        return Rule(rule_id, severity, (check.__doc__ or "").strip(), source, check)

    return decorate


def engine_name(candidate: Candidate) -> str:
    """The engine and its version in messages: "vLLM 0.33.0"."""
    return f"{candidate.engine.title} {candidate.version}"
