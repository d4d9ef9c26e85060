"""Where the hosts of one service wait for one another: each goes at its own pace, and what is done together is agreed.

Within one phase of a run (comparing, carrying out) every host of the set says what it has to say at a step, and goes on
when all have. Who leaves, because it failed or has nothing more to do, keeps nobody waiting.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from gevent.event import Event


@dataclass(frozen=True)
class Told:
    """What came of a step. said: by host. gone: who left without a word, with why, "" where nothing had failed."""

    said: dict[str, Any]
    gone: dict[str, str]


@dataclass
class Rendezvous:
    """The hosts of one set, by rank: the first is the head."""

    hosts: tuple[str, ...]
    _gone: dict[str, str] = field(default_factory=dict)
    _said: dict[str, dict[str, Any]] = field(default_factory=dict)
    _news: Event = field(default_factory=Event)

    def begin(self, gone: Mapping[str, str]) -> None:
        """A new phase: nothing is said, and all take part but those that are `gone`, with why."""
        self._gone, self._said, self._news = dict(gone), {}, Event()

    def leave(self, host: str, why: str = "") -> None:
        """A host takes no further part in this phase; why: what failed."""
        self._gone.setdefault(host, why)
        self._tell()

    def say(self, host: str, step: str, what: Any) -> None:
        """Says it and waits for nobody. What was said first counts."""
        self._said.setdefault(step, {}).setdefault(host, what)
        self._tell()

    def meet(self, host: str, step: str, what: Any, among: Collection[str] = ()) -> Told:
        """Says it, and returns once every other host has said something at this step, or left.

        among: these alone are waited for; () for all.
        """
        self.say(host, step, what)
        while not self._all(step, among):
            self._news.wait()
        return self.heard(step)

    def heard(self, step: str) -> Told:
        """What was said at a step so far, and who left before that."""
        said = dict(self._said.get(step, {}))
        return Told(said, {name: why for name, why in self._gone.items() if name not in said})

    def _all(self, step: str, among: Collection[str]) -> bool:
        told = self.heard(step)
        return all(name in told.said or name in told.gone for name in among or self.hosts)

    def _tell(self) -> None:
        """Wakes all who wait. Each waits for the next news by an event of its own time."""
        news, self._news = self._news, Event()
        news.set()
