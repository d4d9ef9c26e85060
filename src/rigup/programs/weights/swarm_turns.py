"""Which host asks the hub for which file, and what a host takes next from its peers.

Every host computes the same order on its own, so no coordinator is needed, and the loss of a host does no harm. What a
host sees of its peers (which has a file, is getting it, or is quiet) decides whose turn it is.

Part of fetch_weights.py, for shared downloads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

if __package__:
    from rigup.programs.weights.peers import HASHED_PER_S, PeerSharing, PeerView
    from rigup.programs.weights.weights_folder import File
else:
    from peers import HASHED_PER_S, PeerSharing, PeerView  # type: ignore[import-not-found, no-redef]
    from weights_folder import File  # type: ignore[import-not-found, no-redef]


def owners(files: Iterable[tuple[str, int]], fetchers: Sequence[str]) -> dict[str, int]:
    """The index of the fetcher that is first to ask the hub for each file, by path; files are (path, bytes).

    The result is in the order in which the files are requested: the largest first, each by the fetcher with the fewest
    bytes so far, so that the hub's bytes are split evenly.
    """
    load = [0] * len(fetchers)
    found: dict[str, int] = {}
    for path, size in sorted(files, key=lambda file: (-file[1], file[0])):
        least = min(range(len(load)), key=lambda index: (load[index], index))
        load[least] += size
        found[path] = least
    return found


def gives_way(mine: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    """Whether to leave a file to other hosts that get it from the hub as well: (bytes so far, rank) of each.

    The host with the most bytes continues; among equals, the one with the lowest rank.
    """
    return any((count, -rank) > (mine[0], -mine[1]) for count, rank in others)


def rarest_first(paths: Iterable[str], copies: Mapping[str, int], place: Mapping[str, int], count: int) -> list[str]:
    """The files that a peer has, in the order to take them: those with the fewest copies first, so that they spread.

    place: each file's position in this host's own order; the hosts of a swarm begin at different positions.
    """
    there = [path for path in paths if copies.get(path, 0)]
    return sorted(there, key=lambda path: (copies[path], place[path] % max(1, count), path))


def places(paths: Sequence[str], mine: int, fetchers: int) -> dict[str, int]:
    """Each file's position in the order of fetcher number `mine`: the list, rotated to where its share begins."""
    begin = mine * len(paths) // max(1, fetchers)
    return {path: (index - begin) % len(paths) for index, path in enumerate(paths)}


@dataclass
class SharedFile:
    """One file as this host sees it. owner: the number of the fetcher that comes first at the hub.

    place: position in this host's order. sources: names of the bytes' sources. avoided: peers that may have sent
    corrupt bytes. opened: since when the file may come from the hub. grew: when its part last grew on this host.
    """

    owner: int
    place: int
    sources: set[str] = field(default_factory=set)
    avoided: set[str] = field(default_factory=set)
    opened: float = 0.0
    grew: float = 0.0


class SwarmTurns:
    """What one host knows about its peers and each file.

    live: the peers that answer. began: when all of them had been asked once.
    """

    def __init__(self, sharing: PeerSharing, files: Sequence[File]) -> None:
        self.sharing = sharing
        self.numbers = {name: number for number, name in enumerate(sharing.fetchers)}
        first = owners([(file.path, file.size) for file in files], sharing.fetchers)
        place = places([file.path for file in files], self.numbers[sharing.name], len(self.numbers))
        self.files = {path: SharedFile(owner, place[path]) for path, owner in first.items()}
        self.live: list[PeerView] = []
        self.began = time.monotonic()

    def rank(self, file: File, name: str) -> int:
        """How many fetchers come before this one at the hub: 0 for the owner of the file."""
        return (self.numbers[name] - self.files[file.path].owner) % len(self.numbers)

    def turn(self, file: File) -> int:
        """How many hosts come first: those earlier in the order that answer; all that do not answer count as one."""
        own = self.rank(file, self.sharing.name)
        earlier = {name for name in self.numbers if self.rank(file, name) < own}
        answering = earlier & {view.name for view in self.live}
        return len(answering) + (1 if earlier - answering else 0)

    def offered(self, file: File) -> bool:
        """Whether a trusted peer has the file, even if the peer is busy now."""
        avoided = self.files[file.path].avoided
        return any(view.is_trusted_with(file.sha256) and view.name not in avoided for view in self.live)

    def ahead(self, file: File, count: int) -> bool:
        """Whether a peer gets this file from the hub, makes progress, and takes precedence over this host."""
        now = time.monotonic()
        others = [
            (view.fetching[file.sha256], self.rank(file, view.name))
            for view in self.live
            if file.sha256 in view.fetching
            and view.name in self.numbers
            and not view.unheeded
            and now - view.moved.get(file.sha256, 0.0) < self.sharing.patience_s
        ]
        return gives_way((count, self.rank(file, self.sharing.name)), others)

    def quiet_s(self, file: File, since: float = 0.0) -> float:
        """Seconds without progress with a file on any host, counted from `since` at the earliest."""
        now, most = time.monotonic(), self.sharing.patience_s + file.size / HASHED_PER_S
        moved = [self.began, since, self.files[file.path].grew]
        for view in self.live:
            if view.unheeded:
                continue
            moved.append(view.moved.get(file.sha256, 0.0))
            if file.sha256 in view.claims:
                moved.append(view.hub_moved)
            if file.sha256 in view.hashing and now - view.checked[file.sha256] < most:
                moved.append(now)
        return now - max(moved)

    def sources_of(self, file: File, slow_too: bool) -> list[PeerView]:
        """The peers that offer a file now; slow_too: include slow ones, if the hub is unusable."""
        now, avoided = time.monotonic(), self.files[file.path].avoided
        views = [view for view in self.live if view.offers(file.sha256, now) and view.name not in avoided]
        return [view for view in views if slow_too or not view.slow]

    def is_next(self, file: File, count: int) -> bool:
        """Whether this host must ask the hub for a file now; count: bytes of it that this host has.

        Its turn comes when each host before it has had its time without progress.
        """
        quiet_s = self.quiet_s(file, self.files[file.path].opened)
        if self.offered(file) or quiet_s < self.turn(file) * self.sharing.patience_s:
            return False
        return not self.ahead(file, count)
