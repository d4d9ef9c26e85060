"""Decides which host asks the hub for which file, and what a host takes next from its peers.

Every host computes the same answer on its own, so no coordinator is needed, and the loss of a host does no harm.
Pure: no clock, disk or network. Part of fetch_weights.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


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


def rank(owner: int, mine: int, count: int) -> int:
    """How many hosts come before this one at the hub: 0 for the owner."""
    return (mine - owner) % count


def opened(undone: Sequence[str], most: int) -> set[str]:
    """The files that may come from the hub now: the first `most`, in the common order, that no host has yet.

    All hosts together then ask the hub for as many files at a time as one host would, and pass on complete files while
    the rest arrives.
    """
    return set(undone[:most])


def may_ask_hub(rank: int, quiet_s: float, patience_s: float) -> bool:
    """Whether it is this host's turn for a file without progress for `quiet_s` seconds."""
    return quiet_s >= rank * patience_s


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
