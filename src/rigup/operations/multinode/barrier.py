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
    """The result of a step. said: values by host. gone: hosts that left without one, with the reason, "" if none."""

    said: dict[str, Any]
    gone: dict[str, str]


@dataclass
class Barrier:
    """The hosts of one service by rank; the first is the head."""

    hosts: tuple[str, ...]
    _gone: dict[str, str] = field(default_factory=dict)
    _said: dict[str, dict[str, Any]] = field(default_factory=dict)
    _news: Event = field(default_factory=Event)

    def begin(self, gone: Mapping[str, str]) -> None:
        """Starts a new phase with all hosts except those in `gone`, which maps hosts to reasons."""
        self._gone, self._said, self._news = dict(gone), {}, Event()

    def leave(self, host: str, why: str = "") -> None:
        """Removes a host from this phase; why: what failed."""
        self._gone.setdefault(host, why)
        self._tell()

    def say(self, host: str, step: str, what: Any) -> None:
        """Publishes a host's value for a step without waiting. The first value counts."""
        self._said.setdefault(step, {}).setdefault(host, what)
        self._tell()

    def meet(self, host: str, step: str, what: Any, among: Collection[str] = ()) -> BarrierState:
        """Publishes a host's value and waits until every other host has published one for this step or left.

        among: waits for these hosts only; () for all.
        """
        self.say(host, step, what)
        while not self._all(step, among):
            self._news.wait()
        return self.heard(step)

    def heard(self, step: str) -> BarrierState:
        """The values published for a step so far, and the hosts that left before it."""
        values = dict(self._said.get(step, {}))
        return BarrierState(values, {name: why for name, why in self._gone.items() if name not in values})

    def _all(self, step: str, among: Collection[str]) -> bool:
        state = self.heard(step)
        return all(name in state.said or name in state.gone for name in among or self.hosts)

    def _tell(self) -> None:
        """Wakes all waiting hosts."""
        news, self._news = self._news, Event()
        news.set()
