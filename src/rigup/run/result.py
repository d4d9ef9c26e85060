"""The result of one host in one run. A verb derives its exit code from these, never from a library's exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rigup.errors import RigupError
from rigup.facts.probe import Probe
from rigup.operations.service.answer import Answer

if TYPE_CHECKING:
    from rigup.run.chains.timing import Span, StepTime

State = Literal[
    "pending", "unchanged", "changed", "differs", "failed", "unreachable", "refused", "cancelled", "not begun"
]
TAKES_PART = ("pending", "differs")
WORKER_READY = "joined"  # a worker whose head answers
HEALTHY = ("answers", WORKER_READY)
NO_ANSWER = "no answer"  # a reason follows for a multi-host service


def unanswered(health: str) -> bool:
    """Whether this is the health of a service that did not answer a request."""
    return health.startswith(NO_ANSWER)


class Change(NamedTuple):
    """One step that would change, or did change, a host."""

    role: str
    step: str

    @classmethod
    def of(cls, name: str) -> Change:
        """Parses an operation's full name, "role | step"."""
        role, _, step = name.rpartition(" | ")
        return cls(role.rpartition(" | ")[2], step)


@dataclass
class HostResult:
    """One host's part of a run. `changes`: the planned ones until the host is changed, then those made.

    pending_steps: names of the steps with planned changes. estimated_seconds: for all of them, if it was estimated.
    spans: when its steps were executed. memory: measured GPU memory of each service that this run started
    (rigup.run.measured_memory). worker_health: for each service of a node group, the health of this host's part, or
    why it does not answer.
    """

    host: str
    state: State = "pending"
    changes: list[Change] = field(default_factory=list)
    errors: list[RigupError] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    probe: Probe | None = None
    seconds: float = 0.0
    pending_steps: set[str] = field(default_factory=set)
    estimated_seconds: float | None = None
    spans: list[Span] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    worker_health: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether this host is as planned."""
        return self.state in ("unchanged", "changed")

    @property
    def step_times(self) -> tuple[StepTime, ...]:
        """How long each step took that was executed."""
        if not self.spans:
            return ()
        from rigup.run.chains.timing import step_times  # a run without changes has no steps

        return step_times(self.spans)

    def fail(self, state: State, *errors: RigupError) -> None:
        """Records why this host takes no further part."""
        self.state = state
        self.errors += errors


def exit_code(results: list[HostResult]) -> int:
    """0 if every host is as planned; 2 if no host could be asked; 130 if cancelled; otherwise 1."""
    if any(result.state == "cancelled" for result in results):
        return 130
    if all(result.ok for result in results):
        return 0
    unasked = all(result.state in ("unreachable", "refused") and _codes(result) == {2} for result in results)
    return 2 if unasked else 1


def _codes(result: HostResult) -> set[int]:
    return {error.exit_code for error in result.errors}
