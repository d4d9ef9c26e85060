"""Changes in batches: a canary first, each further batch after every host of the previous one has answered.

The hosts of a node group count as one. Hosts that fail before the first batch count as failures, too: unreachable,
refused, or unchanged without an answer. A batch always completes. No further batch starts after more than
`max_failures` failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rigup.errors import InputError
from rigup.operations.primitives import jobs
from rigup.run.gateways.drains import GatewayDrains
from rigup.run.result import HostResult
from rigup.run.rollout_state import HostState, SavedRollout
from rigup.run.runner import Run

Unit = TypeVar("Unit")


def batches(units: Sequence[Unit], size: int, alone: Callable[[Unit], bool] = lambda _: False) -> list[list[Unit]]:
    """The first unit alone, then the rest `size` at a time, in order. alone: whether a unit is a batch by itself."""
    found: list[list[Unit]] = []
    for number, unit in enumerate(units):
        joins = number > 1 and len(found[-1]) < size and not alone(unit) and not alone(found[-1][0])
        if joins:
            found[-1].append(unit)
        else:
            found.append([unit])
    return found


@dataclass
class RolloutBatches:
    """The changes of a run whose hosts were compared, in batches.

    batches: of the hosts with changes. begun: the batches that were started. not_saved: the error of the last attempt
    to save the progress; no batch starts until it is saved. stopped_by: the error that stopped a batch; it remains the
    reason even if there is disk space again.
    drains: takes hosts out of gateways while they are changed; None where there is no gateway.
    """

    run: Run
    saved: SavedRollout
    size: int
    max_failures: int
    drains: GatewayDrains | None = None
    batches: list[list[str]] = field(init=False)
    begun: list[list[str]] = field(init=False, default_factory=list)
    not_saved: InputError | None = field(init=False, default=None)
    stopped_by: InputError | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        names = self.saved.in_order(self._in("differs"))
        units = self.run.context.groups.units(names)
        alone = self.drains.alone if self.drains else (lambda _: False)
        self.batches = [[name for unit in batch for name in unit] for batch in batches(units, self.size, alone)]

    def ask_the_rest(self) -> None:
        """Sends a real request to the services of every host without changes."""
        asked = self._in("pending")
        if asked:
            self.run.execute(asked)
        if self.batches and not self.stopped:
            self._save(list(self.run.results))

    def due(self) -> Iterator[list[str]]:
        """Each batch at its turn; none after too many failures, after Ctrl-C, or if its start cannot be saved.

        Raises InputError if the start of the first batch cannot be saved.
        """
        for batch in self.batches:
            if self.stopped or not self._saved(batch, "begun"):
                return
            self.begun.append(batch)
            yield batch

    def carry_out(self, batch: list[str]) -> None:
        """Changes these hosts concurrently, and checks that their services answer.

        Gateways come first. Hosts that a gateway cannot do without are refused.
        """
        gateways = self.drains.gateways(batch) if self.drains else []
        if gateways:
            self.run.execute(gateways)
        if others := [name for name in batch if name not in gateways]:
            if self.drains:
                self.drains.carry_out(others, lambda: self.run.execute(others))
            else:
                self.run.execute(others)
        self._save(batch)

    def end(self) -> None:
        """Marks the remaining hosts as not begun."""
        for name in self._in("differs", "pending"):
            self.run.results[name].state = "not begun"
        if self.begun or not self.batches:
            self._save(list(self.run.results))

    @property
    def failed(self) -> list[str]:
        """The hosts that have failed so far, before the first batch or in one."""
        return self._in("failed", "unreachable", "refused", "cancelled")

    @property
    def stopped(self) -> bool:
        """Whether no further batch starts."""
        return jobs.cancelled() or len(self.failed) > self.max_failures

    def _in(self, *states: str) -> list[str]:
        return [name for name, result in self.run.results.items() if result.state in states]

    def _save(self, names: list[str]) -> None:
        results = self.run.results
        self._saved([name for name in names if results[name].ok], "done")
        bad = [name for name in names if name in self.failed]
        self._saved(bad, "failed", {name: why(results[name]) for name in bad})

    def _saved(self, names: list[str], state: HostState, why: Mapping[str, str] | None = None) -> bool:
        """Whether the progress could be saved. After the first change, a failure to save no longer stops the run."""
        try:
            self.saved.save(names, state, why)
        except InputError as error:
            if state == "begun":
                if not self.begun:
                    raise
                self.stopped_by = error
            self.not_saved = error
            return False
        self.not_saved = self.stopped_by
        return True


def why(result: HostResult) -> str:
    """Why a host failed, in one line."""
    return "; ".join(error.message for error in result.errors)
