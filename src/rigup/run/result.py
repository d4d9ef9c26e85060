"""What came of one host in one run. The exit code of a verb is made from these, never from a library's exit code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rigup.errors import RigupError
from rigup.facts.probe import Probe
from rigup.operations.service.health import Answer

State = Literal[
    "pending", "unchanged", "changed", "differs", "failed", "unreachable", "refused", "cancelled", "not begun"
]
TAKES_PART = ("pending", "differs")
WORKER_READY = "joined"  # of a host that serves behind another one, which answers
HEALTHY = ("answers", WORKER_READY)
NO_ANSWER = "no answer"  # of a service that was asked; of one that spans hosts, with why behind it


def unanswered(health: str) -> bool:
    """Whether this is said of a service that did not answer a real question."""
    return health.startswith(NO_ANSWER)


@dataclass(frozen=True)
class Change:
    """One step that would change, or did change, a host."""

    role: str
    step: str

    @classmethod
    def of(cls, name: str) -> Change:
        """From an operation's full name, "role | step"."""
        role, _, step = name.rpartition(" | ")
        return cls(role.rpartition(" | ")[2], step)


@dataclass
class HostResult:
    """One host's part of a run. `changes` are those foreseen until the host was worked on, then those made.

    memory: by service that this run started, its GPUs' memory as measured (rigup.run.measured_memory).
    worker_health: by service of a node group, the health of this host's part, or why it does not answer.
    """

    host: str
    state: State = "pending"
    changes: list[Change] = field(default_factory=list)
    errors: list[RigupError] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    probe: Probe | None = None
    seconds: float = 0.0
    memory: dict[str, Any] = field(default_factory=dict)
    worker_health: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether this host is as it should be."""
        return self.state in ("unchanged", "changed")

    def fail(self, state: State, *errors: RigupError) -> None:
        """Notes why this host takes no further part."""
        self.state = state
        self.errors += errors


def exit_code(results: list[HostResult]) -> int:
    """0 when every host is right; 2 when not one of them could even be asked; 130 when cancelled; else 1."""
    if any(result.state == "cancelled" for result in results):
        return 130
    if all(result.ok for result in results):
        return 0
    unasked = all(result.state in ("unreachable", "refused") and _codes(result) == {2} for result in results)
    return 2 if unasked else 1


def _codes(result: HostResult) -> set[int]:
    return {error.exit_code for error in result.errors}
