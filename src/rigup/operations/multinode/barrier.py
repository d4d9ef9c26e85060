"""A barrier for the hosts of one service: each proceeds at its own pace and they synchronise at named steps.

Within one phase of a run (comparing, executing) every host publishes a value at a step and continues when all hosts
have done so. A host that leaves, because it failed or has finished, is not waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gevent.event import Event


@dataclass(frozen=True)
class BarrierState:
    """The result of a step. values: by host. left: hosts that left without one, with the reason, "" if none."""

    values: dict[str, Any]
    left: dict[str, str]


@dataclass
class Barrier:
    """The hosts of one service by rank; the first is the head."""

    hosts: tuple[str, ...]
    _left: dict[str, str] = field(default_factory=dict)
    _values: dict[str, dict[str, Any]] = field(default_factory=dict)
    _changed: Event = field(default_factory=Event)

    def begin(self, left: Mapping[str, str]) -> None:
        """Starts a new phase with all hosts except those in `left`, which maps hosts to reasons."""
        self._left, self._values, self._changed = dict(left), {}, Event()

    def leave(self, host: str, why: str = "") -> None:
        """Removes a host from this phase; why: what failed."""
        self._left.setdefault(host, why)
        self._wake()

    def post(self, host: str, step: str, what: Any) -> None:
        """Publishes a host's value for a step without waiting. The first value counts."""
        self._values.setdefault(step, {}).setdefault(host, what)
        self._wake()

    def wait(self, host: str, step: str, what: Any, among: Collection[str] = ()) -> BarrierState:
        """Publishes a host's value and waits until every other host has published one for this step or left.

        among: waits for these hosts only; () for all.
        """
        self.post(host, step, what)
        while not self._all(step, among):
            self._changed.wait()
        return self.peek(step)

    def peek(self, step: str) -> BarrierState:
        """The values published for a step so far, and the hosts that left before it."""
        values = dict(self._values.get(step, {}))
        return BarrierState(values, {name: why for name, why in self._left.items() if name not in values})

    def _all(self, step: str, among: Collection[str]) -> bool:
        state = self.peek(step)
        return all(name in state.values or name in state.left for name in among or self.hosts)

    def _wake(self) -> None:
        """Wakes all waiting hosts."""
        changed, self._changed = self._changed, Event()
        changed.set()
