"""Who of several hosts asks the hub for which file, and what a host takes next from its peers.

Every host decides for itself and all come to the same answer, so nobody has to be asked, and nobody is missed when it
dies. Pure: no clock, disk or network. Part of fetch_weights.py. Python 3.10 standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def owners(files: Iterable[tuple[str, int]], fetchers: Sequence[str]) -> dict[str, int]:
    """Which of the fetchers, by index, is the first to ask the hub for each file, by path; files are (path, bytes).

    In the order in which the hub is asked: the largest first, each by whoever has the least so far, so that the hub's
    bytes are split evenly.
    """
    load = [0] * len(fetchers)
    found: dict[str, int] = {}
    for path, size in sorted(files, key=lambda file: (-file[1], file[0])):
        least = min(range(len(load)), key=lambda index: (load[index], index))
        load[least] += size
        found[path] = least
    return found


def rank(owner: int, mine: int, count: int) -> int:
    """Whose turn it is at the hub: 0 for the owner, then one after the other."""
    return (mine - owner) % count


def opened(undone: Sequence[str], most: int) -> set[str]:
    """The files that may come from the hub now: the first `most` of those that nobody has yet, in the order of all.

    The hub is then asked by all hosts together for as much at a time as one host would ask it for, and what is whole is
    passed on while the rest comes.
    """
    return set(undone[:most])


def may_ask_hub(rank: int, quiet_s: float, patience_s: float) -> bool:
    """Whether it is this host's turn for a file without progress for `quiet_s` seconds."""
    return quiet_s >= rank * patience_s


def gives_way(mine: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    """Whether to leave a file that others get from the hub as well: (bytes so far, rank) of each.

    Whoever is further goes on; of those who are equally far, the one whose turn comes first.
    """
    return any((count, -rank) > (mine[0], -mine[1]) for count, rank in others)


def rarest_first(paths: Iterable[str], copies: Mapping[str, int], place: Mapping[str, int], count: int) -> list[str]:
    """The files that somebody has, in the order in which to take them: what fewest have first, so that it spreads.

    place: of each file, where it comes in this host's own order; hosts of one swarm begin at different places.
    """
    there = [path for path in paths if copies.get(path, 0)]
    return sorted(there, key=lambda path: (copies[path], place[path] % max(1, count), path))


def places(paths: Sequence[str], mine: int, fetchers: int) -> dict[str, int]:
    """Each file's place in the order of fetcher number `mine`: the list, begun where its share of it begins."""
    begin = mine * len(paths) // max(1, fetchers)
    return {path: (index - begin) % len(paths) for index, path in enumerate(paths)}
