"""Weights that the hosts of a run download together: prepared before the download, cleaned up after it.

During the download the hosts work on their own (programs/weights/swarm.py), even without the controlling machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import gevent

from rigup import layout
from rigup.connection.connections import PARALLEL_HOSTS
from rigup.connection.pyinfra_internals import at_work_on
from rigup.connection.ssh_address import ssh_address
from rigup.host import Host, state_of
from rigup.operations.primitives import jobs, progress
from rigup.operations.primitives.progress import Progress
from rigup.operations.weights import sharing
from rigup.operations.weights.checkpoint import checkpoint_key, step_name
from rigup.operations.weights.sharing import SharedDownload, Sharing, SharingPeer, WeightsServer
from rigup.run.context import RunContext, ask_quietly
from rigup.run.weights.download_groups import DownloadGroup, distinct, download_groups
from rigup.settings import WeightsSettings

ALL = "all hosts"
HUB = "hub"
TOTAL_EVERY_SECONDS = 1.0
WAIT_SECONDS = 0.5
STARTED = ("failed", "unreachable", "refused", "cancelled", "changed", "unchanged", "not begun")


@dataclass
class TransferSummary:
    """The result of one group. taken: bytes by host and by source, "hub" or another host. messages: problems."""

    repo: str
    quant: str
    fetchers: tuple[str, ...]
    complete: tuple[str, ...]
    size: int
    taken: dict[str, dict[str, int]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    @property
    def hub_bytes(self) -> int:
        """The bytes that all hosts together took from the hub."""
        return sum(sources.get(HUB, 0) for sources in self.taken.values())

    @property
    def lan_bytes(self) -> int:
        """The bytes that the hosts took from one another."""
        return sum(sum(sources.values()) for sources in self.taken.values()) - self.hub_bytes


def planned_sharing(context: RunContext, names: Collection[str] | None = None) -> tuple[DownloadGroup, ...]:
    """The download groups of a run after its comparison, or of these hosts of it. Runs nothing on hosts."""
    turn = context.results.keys() if names is None else names
    return download_groups(context.plans, _settings(context), _lacking(context, turn), _ready(context, turn))


def _settings(context: RunContext) -> dict[str, WeightsSettings]:
    return {name: of_host.weights or WeightsSettings() for name, of_host in context.settings.items()}


def _lacking(context: RunContext, names: Collection[str]) -> dict[str, set[str]]:
    """The checkpoints that each of these hosts is about to download."""
    found: dict[str, set[str]] = {}
    for name in names:
        steps = {change.step for change in context.results[name].changes if change.role == "weights"}
        checkpoints = [each for plan in context.plans[name] for each in plan.checkpoints]
        if context.results[name].state == "differs":
            found[name] = {checkpoint_key(one) for one in checkpoints if step_name(one) in steps}
    return found


def _ready(context: RunContext, names: Collection[str]) -> set[str]:
    """The hosts that have all their other checkpoints, when it is the turn of `names`."""
    results = context.results
    waiting = {name for name, result in results.items() if result.state == "differs" and name not in names}
    fetching = {name for name in waiting if any(change.role == "weights" for change in results[name].changes)}
    at_hand = {name for name, result in results.items() if result.ok or result.state in ("pending", "differs")}
    return at_hand - fetching


class WeightsDistribution:
    """A context manager around one execution of a run, for its download groups; it adds to `summaries` at the end."""

    def __init__(self, context: RunContext, names: Collection[str] | None, summaries: list[TransferSummary]) -> None:
        self.context = context
        self.summaries = summaries
        self.names, self.settings = names, _settings(context)
        self.hosts = {host.name: host for host in context.state.inventory}
        self.found: tuple[DownloadGroup, ...] = ()
        self.groups: tuple[DownloadGroup, ...] = ()
        self.unknown: list[str] = []
        self.arrived: dict[str, set[str]] = {}
        self.done: dict[str, tuple[int, int]] = {}
        self.shown = 0.0
        self.over = False

    def __enter__(self) -> Self:
        self.found = found = planned_sharing(self.context, self.names)
        if not found:
            return self
        members = {name for group in found for name in group.members}
        own = self._on_each(members, sharing.own_addresses)
        addresses = distinct({name: known for name in members if (known := self._known_address(name))})
        self.unknown = sorted(members - addresses.keys())
        there = addresses.keys() & own.keys()
        kept = [self._without(group, there) for group in found]
        self.groups = tuple(group for group in kept if group.fetchers and len(group.members) > 1)
        for group in (one for one, left in zip(found, kept, strict=True) if left not in self.groups):
            self.summaries += self._not_shared(group)
        servers = self._servers(addresses, own)
        for group in self.groups:
            for name in group.fetchers:
                others = tuple(servers[other].member for other in group.members if other != name)
                part = SharedDownload(group.key, servers[name], group.fetchers, others, self._arriving(group, name))
                state_of(self.hosts[name], Sharing).parts[part.key] = part
        whole = {name for group in self.groups for name in group.complete}
        self._on_each(whole, lambda host: sharing.serve_if_possible(host, servers[host.name]))
        if self.groups:
            progress.listen(self._show_total)
        return self

    def __exit__(self, *exception: object) -> None:
        self.over = True
        for group in self.groups:
            self.summaries.append(self._summary(group))
        fetchers = {name for group in self.groups for name in group.fetchers}
        # after a lost connection a download continues and needs the other hosts: their servers end when idle
        if all(self._fetched(name) for name in fetchers) or jobs.cancelled():
            ending = {name for group in self.groups for name in group.members if not self.settings[name].keep}
            self._on_each({name for name in ending if state_of(self.hosts[name], Sharing).serves}, sharing.end)

    def _known_address(self, name: str) -> str | None:
        """A host's address for other hosts, from the inventory or from this machine's connection to it.

        Never from the host itself: the others' servers accept this address.
        """
        return self.settings[name].lan_address or ssh_address(self.hosts[name])

    def _unknown(self, group: DownloadGroup) -> list[str]:
        """Messages about hosts that cannot take part in a group because their address is unknown."""
        return [
            f"{name}: shares no weights: its address for other hosts is unknown; "
            f'set it in the inventory: ("{name}", {{"lan_address": "192.168.1.10"}})'
            for name in self.unknown
            if name in group.members
        ]

    def _not_shared(self, group: DownloadGroup) -> list[TransferSummary]:
        """Summaries with only messages, for a group that is not formed because too few addresses are known."""
        messages = self._unknown(group)
        if not messages:
            return []
        checkpoint = group.checkpoint
        size = sum(file.size for file in checkpoint.files)
        return [TransferSummary(checkpoint.repo, str(checkpoint.quant), (), (), size, messages=messages)]

    @staticmethod
    def _without(group: DownloadGroup, found: Collection[str]) -> DownloadGroup:
        """The group without hosts that were not found."""
        fetchers, complete = (
            tuple(name for name in names if name in found) for names in (group.fetchers, group.complete)
        )
        return DownloadGroup(group.key, group.checkpoint, fetchers, complete)

    def _servers(self, addresses: dict[str, str], own: dict[str, tuple[str, ...]]) -> dict[str, WeightsServer]:
        """Each member's server: it allows the other members of its groups, and itself for the check after the start.

        own: addresses reported by the hosts themselves, used only to bind their own servers.
        """
        friends: dict[str, set[str]] = {}
        complete: dict[str, list[dict[str, Any]]] = {}
        for group in self.groups:
            for name in group.members:
                friends.setdefault(name, set()).update(group.members)
            revision = group.checkpoint.revision or ""
            folder = layout.weights_folder(group.checkpoint.repo, revision)
            files = [file.model_dump() for file in group.checkpoint.files]
            for name in group.complete:
                complete.setdefault(name, []).append({"key": group.key, "folder": folder, "files": files})
        found = {}
        for name, others in friends.items():
            listen = (addresses[name],) if addresses[name] in own[name] else own[name]
            allow = {*(addresses[other] for other in others), *listen}
            member = SharingPeer(name, (addresses[name],), self.settings[name].port)
            whole = tuple(complete.get(name, ()))
            found[name] = WeightsServer(member, listen, tuple(sorted(allow)), whole, self.settings[name].keep)
        return found

    def _arriving(self, group: DownloadGroup, name: str) -> Callable[[], None]:
        """A function that a host calls when all uploads to it have finished; it waits for those of other hosts."""

        def arrived() -> None:
            there = self.arrived.setdefault(group.key, set())
            there.add(name)
            # if there are more hosts than run concurrently, some would wait for hosts that cannot start
            sending = (
                self.context.settings[name].packages.wheelhouse is not None and len(group.fetchers) <= PARALLEL_HOSTS
            )
            while sending and not jobs.cancelled():
                later = self.context.changed_elsewhere  # these hosts start only after this one has ended
                late = [other for other in group.fetchers if other not in there and other not in later]
                if all(self.context.results[other].state in STARTED for other in late):
                    return
                progress.report(Progress(name, "weights", text=f"waiting for uploads to {', '.join(late[:3])}"))
                gevent.sleep(WAIT_SECONDS)

        return arrived

    def _on_each(self, names: Iterable[str], work: Callable[[Any], Any]) -> dict[str, Any]:
        """The results of `work` on each of these hosts, without hosts where it fails, as sharing is optional."""

        def at_work(host: Host) -> Any:
            with at_work_on(self.context.state, host):
                return work(host)

        return ask_quietly(
            self.context.state, {name: partial(at_work, self.hosts[name]) for name in sorted(set(names))}
        )

    def _fetched(self, name: str) -> bool:
        """Whether a host has ended its download; after a lost connection it may continue by itself."""
        result = self.context.results[name]
        return result.ok or not any("connection lost" in error.message for error in result.errors)

    def _summary(self, group: DownloadGroup) -> TransferSummary:
        size = sum(file.size for file in group.checkpoint.files)
        repo, quant = group.checkpoint.repo, group.checkpoint.quant
        summary = TransferSummary(repo, str(quant), group.fetchers, group.complete, size)
        summary.messages += [text for found in self.found if found.key == group.key for text in self._unknown(found)]
        states = self._on_each(group.fetchers, lambda host: sharing.sharing_state(host, group.key))
        asking = [name for name, state in states.items() if state.unreachable]
        answering = self._on_each(asking, lambda host: sharing.answering(host, group.key))
        for name in group.members:
            if problem := state_of(self.hosts[name], Sharing).problem:
                summary.messages.append(problem)
        for name, state in states.items():
            summary.taken[name] = {one: count for one, count in state.taken.items() if one == HUB or one in self.hosts}
            summary.messages += [f"{name}: {other} is banned: it {why}" for other, why in state.banned.items()]
            summary.messages += [f"{name}: {other} is too slow: it {why}" for other, why in state.slow.items()]
            for other, why in state.unreachable.items():
                # a server that answers now was started when this host's download had ended
                served = other in self.hosts and state_of(self.hosts[other], Sharing).serves
                if served and other not in answering.get(name, ()):
                    summary.messages.append(f"{name}: {other} could not serve weights: {why}")
        return summary

    def _show_total(self, latest: Progress) -> None:
        """Reports the total progress of all hosts."""
        fetchers = {name for group in self.groups for name in group.fetchers}
        if self.over or latest.host not in fetchers or latest.step != "weights" or not latest.total:
            return
        self.done[latest.host] = (latest.done, latest.total)
        now = time.monotonic()
        if now - self.shown >= TOTAL_EVERY_SECONDS and len(self.done) > 1:
            self.shown = now
            done, total = (sum(each) for each in zip(*self.done.values(), strict=True))
            progress.report(Progress(ALL, "weights", done, total, "bytes", f"on {len(self.done)} hosts:"))
