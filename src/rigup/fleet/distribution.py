"""Weights that the hosts of a run download together: who takes part is set up before, and cleared away after.

While it runs the hosts manage by themselves (programs/swarm.py), also without the controlling machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import gevent
from pyinfra.context import ctx_config, ctx_host

from rigup import layout
from rigup.errors import RigupError
from rigup.fleet.contact import PARALLEL_HOSTS
from rigup.fleet.swarms import Swarm, distinct, swarms
from rigup.fleet.weights_settings import WeightsSettings
from rigup.operations import jobs, progress, remote, weights_sharing
from rigup.operations.progress import Progress
from rigup.operations.weights import checkpoint_key, step_name
from rigup.operations.weights_sharing import Member, Part, Server

if TYPE_CHECKING:
    from rigup.fleet.runner import Run

ALL = "all hosts"
TOTAL_EVERY_SECONDS = 1.0
WAIT_SECONDS = 0.5
STARTED = ("failed", "unreachable", "refused", "cancelled", "changed", "unchanged", "not begun")


@dataclass
class Tally:
    """What came of one swarm. taken: bytes by host and by source, "hub" or another host. told: what went wrong."""

    repo: str
    quant: str
    fetchers: tuple[str, ...]
    complete: tuple[str, ...]
    size: int
    taken: dict[str, dict[str, int]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    @property
    def hub_bytes(self) -> int:
        """What all hosts together took from the hub."""
        return sum(sources.get("hub", 0) for sources in self.taken.values())

    @property
    def lan_bytes(self) -> int:
        """What they took from one another."""
        return sum(sum(sources.values()) for sources in self.taken.values()) - self.hub_bytes


def foreseen(run: Run) -> tuple[Swarm, ...]:
    """The swarms of a run that was compared. Nobody is asked."""
    settings = {name: said.weights or WeightsSettings() for name, said in run.settings.items()}
    names = set(run.results)
    return swarms(run.plans, settings, _lacking(run, names), _ready(run, names))


def _lacking(run: Run, names: Collection[str]) -> dict[str, set[str]]:
    """The checkpoints that each of these hosts is about to get."""
    found: dict[str, set[str]] = {}
    for name in names:
        steps = {change.step for change in run.results[name].changes if change.role == "weights"}
        checkpoints = [plan.checkpoint for plan in run.plans[name] if plan.checkpoint]
        if run.results[name].state == "differs":
            found[name] = {checkpoint_key(one) for one in checkpoints if step_name(one) in steps}
    return found


def _ready(run: Run, names: Collection[str]) -> set[str]:
    """The hosts that have what they are not about to get, now that it is these hosts' turn."""
    results = run.results
    waiting = {name for name, result in results.items() if result.state == "differs" and name not in names}
    fetching = {name for name in waiting if any(change.role == "weights" for change in results[name].changes)}
    at_hand = {name for name, result in results.items() if result.ok or result.state in ("pending", "differs")}
    return at_hand - fetching


class Distribution:
    """The swarms of one stretch of a run. A context manager around it; `tallies` are there afterwards."""

    def __init__(self, run: Run, names: Collection[str] | None) -> None:
        self.run = run
        self.names = set(run.results if names is None else names)
        self.settings = {name: said.weights or WeightsSettings() for name, said in run.settings.items()}
        self.hosts = {host.name: host for host in run.state.inventory}
        self.swarms: tuple[Swarm, ...] = ()
        self.arrived: dict[str, set[str]] = {}
        self.done: dict[str, tuple[int, int]] = {}
        self.shown = 0.0
        self.over = False

    def __enter__(self) -> Self:
        found = swarms(self.run.plans, self.settings, _lacking(self.run, self.names), _ready(self.run, self.names))
        if not found:
            return self
        asked = self._on_each({name for swarm in found for name in swarm.members}, weights_sharing.addresses_of)
        said = {name: (own,) if (own := self.settings[name].lan_address) else asked[name] for name in asked}
        addresses = {name: own for name, own in distinct(said).items() if own}
        kept = (self._without(swarm, addresses.keys()) for swarm in found)
        self.swarms = tuple(swarm for swarm in kept if swarm.fetchers and len(swarm.members) > 1)
        servers = self._servers(addresses, asked)
        for swarm in self.swarms:
            for name in swarm.fetchers:
                others = tuple(servers[other].member for other in swarm.members if other != name)
                part = Part(swarm.key, servers[name], swarm.fetchers, others, self._arriving(swarm, name))
                weights_sharing.take_part(self.hosts[name], part)
        whole = {name for swarm in self.swarms for name in swarm.complete}
        self._on_each(whole, lambda host: weights_sharing.serve_if_possible(host, servers[host.name]))
        if self.swarms:
            progress.listen(self._hear)
        return self

    def __exit__(self, *exception: object) -> None:
        self.over = True
        for swarm in self.swarms:
            self.run.tallies.append(self._tally(swarm))
        fetchers = {name for swarm in self.swarms for name in swarm.fetchers}
        # a lost connection leaves a download behind that goes on and needs the others: their servers end when idle
        if all(self._fetched(name) for name in fetchers) or jobs.cancelled():
            ending = {name for swarm in self.swarms for name in swarm.members if not self.settings[name].keep}
            self._on_each({name for name in ending if weights_sharing.serves(self.hosts[name])}, weights_sharing.end)

    @staticmethod
    def _without(swarm: Swarm, found: Collection[str]) -> Swarm:
        """The swarm without hosts that nobody finds."""
        fetchers, complete = (
            tuple(name for name in names if name in found) for names in (swarm.fetchers, swarm.complete)
        )
        return Swarm(swarm.key, swarm.checkpoint, fetchers, complete)

    def _servers(self, addresses: dict[str, tuple[str, ...]], own: dict[str, tuple[str, ...]]) -> dict[str, Server]:
        """What each member serves to whom: the other members of its swarms."""
        friends: dict[str, set[str]] = {}
        complete: dict[str, list[dict[str, Any]]] = {}
        for swarm in self.swarms:
            for name in swarm.members:
                friends.setdefault(name, set()).update(swarm.members)
            revision = swarm.checkpoint.revision or ""
            folder = layout.weights_folder(swarm.checkpoint.repo, revision)
            files = [file.model_dump() for file in swarm.checkpoint.files]
            for name in swarm.complete:
                complete.setdefault(name, []).append({"key": swarm.key, "folder": folder, "files": files})
        found = {}
        for name, others in friends.items():
            allow = {address for other in others for address in (*addresses[other], *own[other])}
            member = Member(name, addresses[name], self.settings[name].port)
            whole = tuple(complete.get(name, ()))
            listen = addresses[name] if set(addresses[name]) <= set(own[name]) else own[name]
            found[name] = Server(member, listen, tuple(sorted(allow)), whole, self.settings[name].keep)
        return found

    def _arriving(self, swarm: Swarm, name: str) -> Callable[[], None]:
        """What a host calls when all that this machine sends to it is there; it then waits for the others."""

        def arrived() -> None:
            there = self.arrived.setdefault(swarm.key, set())
            there.add(name)
            # of more hosts than are worked on at a time, some would wait for others whose turn never comes
            sending = self.run.settings[name].packages.wheelhouse is not None and len(swarm.fetchers) <= PARALLEL_HOSTS
            while sending and not jobs.cancelled():
                later = self.run.disturbed  # whose turn comes when this one's has ended
                late = [other for other in swarm.fetchers if other not in there and other not in later]
                if all(self.run.results[other].state in STARTED for other in late):
                    return
                progress.report(Progress(name, "weights", text=f"waiting for what is sent to {', '.join(late[:3])}"))
                gevent.sleep(WAIT_SECONDS)

        return arrived

    def _on_each(self, names: Iterable[str], work: Callable[[Any], Any]) -> dict[str, Any]:
        """What `work` returns on each of these hosts; those where it fails are left out, for they are no loss."""

        def quietly(host: Any) -> Any:
            try:
                with ctx_config.use(self.run.state.config.copy()), ctx_host.use(host):
                    return work(host)
            except (RigupError, *remote.LOST):
                return None
            finally:
                ctx_host.reset()

        begun = {name: self.run.state.pool.spawn(quietly, self.hosts[name]) for name in sorted(set(names))}
        gevent.joinall(list(begun.values()))
        return {name: greenlet.value for name, greenlet in begun.items() if greenlet.value is not None}

    def _fetched(self, name: str) -> bool:
        """Whether a host is through with its weights, in whatever way: none goes on by itself."""
        result = self.run.results[name]
        return result.ok or not any("connection lost" in error.message for error in result.errors)

    def _tally(self, swarm: Swarm) -> Tally:
        size = sum(file.size for file in swarm.checkpoint.files)
        repo, quant = swarm.checkpoint.repo, swarm.checkpoint.quant
        tally = Tally(repo, str(quant), swarm.fetchers, swarm.complete, size)
        states = self._on_each(swarm.fetchers, lambda host: weights_sharing.told(host, swarm.key))
        for name in swarm.members:
            if problem := weights_sharing.problem_of(self.hosts[name]):
                tally.told.append(problem)
        for name, state in states.items():
            tally.taken[name] = {str(source): int(count) for source, count in state.get("taken", {}).items()}
            tally.told += [f"{name}: {other} is shunned: it {why}" for other, why in state.get("shunned", {}).items()]
            for other, why in state.get("unreachable", {}).items():
                if other in self.hosts and weights_sharing.serves(self.hosts[other]):
                    tally.told.append(f"{name}: {other} could not be asked for weights: {why}")
        return tally

    def _hear(self, said: Progress) -> None:
        """Adds up how far all hosts are, and says so."""
        fetchers = {name for swarm in self.swarms for name in swarm.fetchers}
        if self.over or said.host not in fetchers or said.step != "weights" or not said.total:
            return
        self.done[said.host] = (said.done, said.total)
        now = time.monotonic()
        if now - self.shown >= TOTAL_EVERY_SECONDS and len(self.done) > 1:
            self.shown = now
            done, total = (sum(each) for each in zip(*self.done.values(), strict=True))
            progress.report(Progress(ALL, "weights", done, total, "bytes", f"on {len(self.done)} hosts:"))
