"""Computes the figures of one level from its request records.

Each figure is also computed for equal parts of the level in sequence: their spread is the noise.
"""

from __future__ import annotations

from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rigup.programs.bench.bench_stream import RequestRecord

PARTS = 10
# with fewer values than this the 99th percentile is just the maximum
ENOUGH_FOR_P99 = 100
MOST_LISTED = 100


def percentile(ascending: Sequence[float], part: float) -> float:
    """Interpolates between the two nearest values (as numpy does)."""
    place = (len(ascending) - 1) * part
    low = int(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] + (ascending[high] - ascending[low]) * (place - low)


def distribution(groups: Sequence[Iterable[float]]) -> dict[str, Any] | None:
    """Mean and percentiles of all values; groups are the parts of a level. None if there are no values."""
    parts = [sorted(group) for group in groups]
    ascending = sorted(value for part in parts for value in part)
    if not ascending:
        return None
    filled = [part for part in parts if part]
    return {
        "count": len(ascending),
        "mean": sum(ascending) / len(ascending),
        "p50": percentile(ascending, 0.5),
        "p95": percentile(ascending, 0.95),
        "p99": percentile(ascending, 0.99),
        "most": ascending[-1],
        "parts": {
            "mean": [sum(part) / len(part) for part in filled],
            "p50": [percentile(part, 0.5) for part in filled],
            "p99": [percentile(part, 0.99) for part in filled if len(part) >= ENOUGH_FOR_P99],
        },
    }


def rate(times: array[float], weights: array[float], edges: Sequence[float]) -> dict[str, Any]:
    """Weight per second from the first edge to the last, and between each two edges."""
    sums = [0.0] * (len(edges) - 1)
    for time, weight in zip(times, weights, strict=True):
        if edges[0] <= time <= edges[-1]:
            sums[min(bisect(edges, time), len(sums)) - 1] += weight
    widths = [max(1e-9, edges[n + 1] - edges[n]) for n in range(len(sums))]
    parts = [total / width for total, width in zip(sums, widths, strict=True)]
    return {"mean": sum(sums) / max(1e-9, edges[-1] - edges[0]), "parts": parts}


def edges_of(groups: Sequence[Sequence[RequestRecord]], begin: float, end: float, evenly: bool) -> list[float]:
    """The edges of a window's parts: of equal length, or where each group of requests began."""
    if evenly or not groups:
        return [begin + (end - begin) * n / PARTS for n in range(PARTS + 1)]
    return [begin, *(group[0].started for group in groups[1:]), end]


def parted(records: Sequence[RequestRecord]) -> list[Sequence[RequestRecord]]:
    """Requests in the order in which they began, in at most PARTS groups of nearly equal size."""
    ordered = sorted(records, key=lambda record: record.started)
    count = min(PARTS, len(ordered))
    return [ordered[len(ordered) * n // count : len(ordered) * (n + 1) // count] for n in range(count)]


def tokens_of(record: RequestRecord) -> int:
    """Number of generated tokens: as the engine counts them, else one per event."""
    return record.tokens if record.tokens is not None else len(record.arrivals)


def time_per_token(record: RequestRecord) -> float | None:
    """Average milliseconds between tokens after the first; None for fewer than two tokens."""
    tokens = tokens_of(record)
    return (record.last - record.arrivals[0]) * 1000 / (tokens - 1) if tokens > 1 else None


def gaps(record: RequestRecord) -> Iterable[float]:
    """Milliseconds between consecutive events with a piece of the answer."""
    times = record.arrivals
    return (1000 * (times[n] - times[n - 1]) for n in range(1, len(times)))


def figures(records: Sequence[RequestRecord], begin: float, end: float, evenly: bool) -> dict[str, Any]:
    """All figures of a level with the window from `begin` to `end`.

    records: every request of the level, including uncounted and interrupted ones. Latencies cover the counted requests;
    throughput covers everything that arrived within the window. The window's parts have equal length if `evenly`, else
    equally many requests.
    """
    good = [record for record in records if record.counted and record.ended and not record.error]
    failed = [record for record in records if record.error]
    whole = [record for record in records if record.ended and not record.error]
    events = sum(len(record.arrivals) for record in whole)
    usual = sum(tokens_of(record) for record in whole) / events if events else 1.0
    times, weights, prompts, starts = array("d"), array("d"), array("d"), array("d")
    for record in records:
        known = record.tokens is not None and record.arrivals
        each = record.tokens / len(record.arrivals) if known and record.tokens else usual
        times.extend(record.arrivals)
        weights.extend([each] * len(record.arrivals))
        if record.arrivals:
            starts.append(record.arrivals[0])
            prompts.append(record.prompt_tokens or 0)
    ends = array("d", [record.ended for record in whole])
    groups = parted(good)
    edges = edges_of(groups, begin, end, evenly)
    return {
        "requests": {
            "counted": len(good),
            "all": len(whole),
            "failed": len(failed),
            "broken_off": sum(not record.ended for record in records),
        },
        "failures": dict(Counter(record.error for record in failed).most_common()),
        "window_s": end - begin,
        "output_tokens_per_second": rate(times, weights, edges),
        "prompt_tokens_per_second": rate(starts, prompts, edges),
        "requests_per_second": rate(ends, array("d", [1.0] * len(ends)), edges),
        "ttft_ms": distribution([[1000 * (r.arrivals[0] - r.started) for r in group] for group in groups]),
        "tpot_ms": distribution([[ms for r in group if (ms := time_per_token(r)) is not None] for group in groups]),
        "itl_ms": distribution([[gap for r in group for gap in gaps(r)] for group in groups]),
        "request_ms": distribution([[1000 * (r.ended - r.started) for r in group] for group in groups]),
        "prompt_tokens": _bounds([r.prompt_tokens for r in good if r.prompt_tokens is not None]),
        "output_tokens": _bounds([tokens_of(r) for r in good]),
        "tokens_per_event": usual,
        "each": [_row(record, begin) for record in good] if len(good) <= MOST_LISTED else [],
    }


def _bounds(values: Sequence[int]) -> dict[str, int] | None:
    return {"least": min(values), "most": max(values)} if values else None


def _row(record: RequestRecord, begin: float) -> dict[str, Any]:
    return {
        "name": record.name,
        "started_s": record.started - begin,
        "ttft_ms": 1000 * (record.arrivals[0] - record.started),
        "tpot_ms": time_per_token(record),
        "seconds": record.ended - record.started,
        "tokens": tokens_of(record),
        "prompt_tokens": record.prompt_tokens,
    }
