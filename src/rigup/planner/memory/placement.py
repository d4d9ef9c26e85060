"""Which layers go to which GPU: contiguous runs, as llama.cpp's layer split and pipeline parallelism need them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

_PRECISION = 2**20


def partition(costs: Sequence[float], rooms: Sequence[float]) -> tuple[int, ...] | None:
    """How many consecutive layers each GPU gets, so that the fullest GPU is as empty as can be, to a MiB.

    The rest is shared out evenly: no GPU stays nearly empty where others are filled up to that margin.

    costs: bytes of each layer, in order. rooms: bytes that each GPU has for layers. Every GPU gets a layer at least.
    The counts add up to the layers. None if the layers do not fit; the same input always gives the same answer.
    """
    totals = [0.0, *accumulate(costs)]
    # No split leaves more on its fullest GPU than the average.
    margin = max(0.0, (sum(rooms) - totals[-1]) / len(rooms))
    best, next_margin = _filled(totals, rooms, margin)
    while best is None and margin > 0:
        margin = max(0.0, next_margin - _PRECISION)
        best, next_margin = _filled(totals, rooms, margin)
    if best is None:
        # Filling each GPU up can leave the next one a layer too large for it, where layers differ.
        return _any_split(totals, rooms) if len(set(costs)) > 1 else None
    even = _evened(totals, rooms, margin)
    return even if _leaves(even, totals, rooms, margin) else best


def fits(costs: Sequence[float], rooms: Sequence[float]) -> bool:
    """Whether there is any such split. Quicker than asking for the best one."""
    totals = [0.0, *accumulate(costs)]
    if _filled(totals, rooms, 0.0)[0] is not None:
        return True
    return len(set(costs)) > 1 and _any_split(totals, rooms) is not None


def _filled(totals: list[float], rooms: Sequence[float], margin: float) -> tuple[tuple[int, ...] | None, float]:
    """Fills each GPU up to `margin` before it is full, leaving a layer for each GPU that follows.

    None if layers are left over; with the next smaller margin at which a GPU takes a layer more.
    """
    layers, counts, done, next_margin = len(totals) - 1, [], 0, 0.0
    for position, room in enumerate(rooms):
        left = layers - done - (len(rooms) - position - 1)
        most = max(0, bisect_right(totals, totals[done] + room - margin) - 1 - done)
        if most < left:
            next_margin = max(next_margin, room - (totals[done + most + 1] - totals[done]))
        count = min(most, left)
        if count < 1:
            return None, next_margin
        counts.append(count)
        done += count
    return (tuple(counts) if done == layers else None), next_margin


def _evened(totals: list[float], rooms: Sequence[float], margin: float) -> tuple[int, ...]:
    """A split that leaves each GPU as much as the GPUs after it have on average, as far as whole layers allow.

    Requires that some split leaves `margin` on each GPU. If layers differ much, this one may leave less: see `_leaves`.
    """
    layers, last = len(totals) - 1, len(rooms) - 1
    # The fewest layers that the first GPUs must hold, so that those after them can hold the rest.
    least = [layers]
    for room in reversed(rooms[1:]):
        start = bisect_left(totals, totals[least[0]] - room + margin, 0, least[0])
        least.insert(0, min(start, least[0] - 1))
    counts, done = [], 0
    for position, room in enumerate(rooms):
        most = min(bisect_right(totals, totals[done] + room - margin) - 1, layers - (last - position))
        fewest = max(least[position], done + 1)
        spare = (sum(rooms[position:]) - (totals[-1] - totals[done])) / (last - position + 1)
        end = bisect_left(totals, totals[done] + room - spare, fewest, max(fewest, most))
        if end > fewest and totals[end] - (totals[done] + room - spare) > totals[done] + room - spare - totals[end - 1]:
            end -= 1
        counts.append(end - done)
        done = end
    return tuple(counts)


def _leaves(counts: Sequence[int], totals: list[float], rooms: Sequence[float], margin: float) -> bool:
    """Whether a split leaves each GPU at least `margin`, and each has a layer."""
    ends = list(accumulate(counts))
    starts = [0, *ends[:-1]]
    return min(counts) > 0 and all(
        room - (totals[end] - totals[start]) >= margin for start, end, room in zip(starts, ends, rooms, strict=True)
    )


def _any_split(totals: list[float], rooms: Sequence[float]) -> tuple[int, ...] | None:
    """Some split that fits, found from the last GPU on; None if there is none."""
    layers = len(totals) - 1
    if totals[-1] > sum(rooms):
        return None
    # ends[position]: where that GPU may end, by where it begins, so that the rest fits on those that follow.
    possible, ends = {layers}, list[dict[int, int]]()
    for room in reversed(rooms):
        found = {}
        for start in range(layers):
            most = bisect_right(totals, totals[start] + room) - 1
            end = next((end for end in range(most, start, -1) if end in possible), None)
            if end is not None:
                found[start] = end
        ends.insert(0, found)
        possible = set(found)
    if 0 not in possible:
        return None
    counts, start = [], 0
    for found in ends:
        counts.append(found[start] - start)
        start = found[start]
    return tuple(counts)
