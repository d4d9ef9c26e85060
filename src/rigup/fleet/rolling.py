"""Rolling changes: one host first, then batches, each only after every host of the one before has answered.

Hosts that serve together count as one.

What failed before anything was begun counts as much as what fails underway: a host that cannot be reached, that is
refused, or that needs no change and does not answer. So does every host that fails in a batch, all of which is carried
out. More than `max_failures` of them, and no further batch begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rigup.errors import InputError
from rigup.fleet.result import HostResult
from rigup.fleet.rollout import Fate, KeptRollout
from rigup.fleet.runner import Run
from rigup.operations import jobs

Unit = TypeVar("Unit")


def batches(units: Sequence[Unit], size: int) -> list[list[Unit]]:
    """The first one alone, the rest `size` at a time, in order."""
    rest = units[1:]
    return [list(units[:1])] * bool(units) + [list(rest[at : at + size]) for at in range(0, len(rest), size)]


@dataclass
class Rolling:
    """The changes of a run whose hosts were compared, in batches.

    batches: of the hosts with something to change. begun: those of them whose turn came. not_kept: why what came of
    the last ones is not on this machine's disk, if it is not; no batch begins before it is. stopped_by: the same,
    of the batch that could not begin for it; it stays the reason when there is room again.
    """

    run: Run
    kept: KeptRollout
    size: int
    max_failures: int
    batches: list[list[str]] = field(init=False)
    begun: list[list[str]] = field(init=False, default_factory=list)
    not_kept: InputError | None = field(init=False, default=None)
    stopped_by: InputError | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        names = self.kept.first(self._in("differs"))
        units = self.run.sets.units(names) if self.run.sets else [[name] for name in names]
        self.batches = [[name for unit in batch for name in unit] for batch in batches(units, self.size)]

    def ask_the_rest(self) -> None:
        """Asks every host that has nothing to change for a generation."""
        asked = self._in("pending")
        if asked:
            self.run.execute(asked)
        if self.batches and not self.stopped:
            self._note(list(self.run.results))

    def due(self) -> Iterator[list[str]]:
        """Each batch when its turn has come; none after too many failures, after Ctrl-C, or unless that is noted.

        Raises InputError where it cannot be noted before the first.
        """
        for batch in self.batches:
            if self.stopped or not self._noted(batch, "begun"):
                return
            self.begun.append(batch)
            yield batch

    def carry_out(self, batch: list[str]) -> None:
        """Changes these hosts, side by side, and has every service of theirs answer."""
        self.run.execute(batch)
        self._note(batch)

    def end(self) -> None:
        """What is left over was not begun."""
        for name in self._in("differs", "pending"):
            self.run.results[name].state = "not begun"
        if self.begun or not self.batches:
            self._note(list(self.run.results))

    @property
    def failed(self) -> list[str]:
        """The hosts that have failed so far, before the first batch or in one."""
        return self._in("failed", "unreachable", "refused", "cancelled")

    @property
    def stopped(self) -> bool:
        """Whether no further batch begins."""
        return jobs.cancelled() or len(self.failed) > self.max_failures

    def _in(self, *states: str) -> list[str]:
        return [name for name, result in self.run.results.items() if result.state in states]

    def _note(self, names: list[str]) -> None:
        results = self.run.results
        self._noted([name for name in names if results[name].ok], "done")
        bad = [name for name in names if name in self.failed]
        self._noted(bad, "failed", {name: why(results[name]) for name in bad})

    def _noted(self, names: list[str], fate: Fate, why: Mapping[str, str] | None = None) -> bool:
        """Whether it could be kept. Once something was changed, that must be told more than how far it came."""
        try:
            self.kept.note(names, fate, why)
        except InputError as error:
            if fate == "begun":
                if not self.begun:
                    raise
                self.stopped_by = error
            self.not_kept = error
            return False
        self.not_kept = self.stopped_by
        return True


def why(result: HostResult) -> str:
    """Why a host failed, in a line."""
    return "; ".join(error.message for error in result.errors)
