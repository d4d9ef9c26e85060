"""The benchmarks of one service: charts, each with its figures as a table. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from rigup.cli.page.line_chart import BOTTOM, LEFT, RIGHT, TOP, Chart, Point, Series, line_chart
from rigup.cli.page.markup import Child, Markup, element
from rigup.cli.page.measurements import (
    Level,
    LevelHistory,
    Result,
    Sweep,
    before,
    histories,
    is_capped,
    singles,
    sweeps,
)
from rigup.cli.page.scales import decades, from_zero, powers_of_two, short, times
from rigup.cli.page.strip_chart import Strip, strip_chart
from rigup.cli.page.widgets import figure, listed, table

LATENCIES = (
    ("ttft_ms", "TTFT", "to the first token"),
    ("tpot_ms", "TPOT", "per token after the first"),
    ("itl_ms", "ITL", "between two pieces"),
)
PERCENTILES = (("p99", "three"), ("p95", "two"), ("p50", "one"))
STATISTICS = ("mean ms", "p50 ms", "p95 ms", "p99 ms", "count")
AT_ONCE = "requests at once"


def benchmark_section(results: Sequence[Result], of: str, id_: str) -> list[Child]:
    """Charts of the last sweep, the last other run, and the history. of: for titles. results: newest first."""
    if not results:
        return [element("p", "Not measured yet. To measure: ", element("code", "rigup bench"), ".", class_="none")]
    figures: list[Child] = []
    notes: list[Child] = []
    for number, sweep in enumerate(sweeps(results)):
        if not number:
            notes.append(_about(sweep.result, "Last sweep"))
        figures.append(_throughput(sweep, before(sweep, results), of, f"{id_}-throughput{number}"))
        figures += [
            _latency(sweep, key, words, of, f"{id_}-{key[:4].rstrip('_')}{number}") for key, *words in LATENCIES
        ]
    if single := singles(results):
        result, levels = single
        figures += [_single(level, result, of, f"{id_}-single{number}") for number, level in enumerate(levels)]
        notes.append(_about(result, "Last run"))
    figures += [_history(one, of, f"{id_}-history{number}") for number, one in enumerate(histories(results))]
    if not figures:
        notes.append(_about(results[0], "Last run"))
        notes.append(element("p", "No request was answered.", class_="none"))
    return [*notes, element("div", figures, class_="charts") if figures else None]


def _about(result: Result, what: str) -> Markup:
    """When and with what a result was measured, and its notes."""
    endpoint = result["endpoint"]
    engine = f"{endpoint.get('engine') or ''} {endpoint.get('version') or ''}".strip()
    parts = [f"{what}: {result['began'].replace('T', ' ').replace('Z', ' UTC')}", engine]
    parts += [f"release {result['release']}" if result.get("release") else ""]
    parts += [f"differs from the plan: {', '.join(map(str, result['drift']))}" if result.get("drift") else ""]
    notes = listed(map(str, result.get("notes") or ()), "notes")
    return element("div", element("p", ", ".join(part for part in parts if part), "."), notes, class_="about")


def _throughput(sweep: Sweep, earlier: Sweep | None, of: str, id_: str) -> Markup:
    points = _rates(sweep.levels, marked=True)
    lines = [Series("now" if earlier else "", points, "one")]
    if earlier:
        when = datetime.fromisoformat(earlier.result["began"])
        lines.append(Series(f"{when:%-d %b}", _rates(earlier.levels), "before"))
    every = [point for line in lines for point in line.points]
    chart = Chart(
        f"Output tokens per second against requests at once, {of}", _throughput_words(sweep), AT_ONCE, tuple(lines)
    )
    x = powers_of_two([point.x for point in every], LEFT, RIGHT)
    y = from_zero(max(point.y for point in every), BOTTOM, TOP)
    heads = ("at once", "out tok/s", "in tok/s", "req/s", "failed", "ran + queued")
    rows = [_throughput_row(level) for level in sweep.levels]
    drawn = line_chart(chart, x, y, id_)
    return figure("Throughput", f"output tokens/s; {lengths(sweep.levels[0])}", drawn, table(heads, rows, chart.title))


def _rates(levels: Sequence[Level], marked: bool = False) -> tuple[Point, ...]:
    """A point per level. The first capped one is marked with how many requests ran."""
    first = next((level for level in levels if is_capped(level)), None)
    return tuple(
        Point(
            level["concurrency"],
            level["output_tokens_per_second"]["mean"],
            f"capped: {level['engine']['running_most']:,} ran" if marked and level is first else "",
            is_capped(level),
        )
        for level in levels
    )


def _throughput_words(sweep: Sweep) -> str:
    rates = [(level["output_tokens_per_second"]["mean"], level["concurrency"]) for level in sweep.levels]
    first, best = rates[0], max(rates)
    words = f"From {first[0]:,.0f} tokens/s at {first[1]:,} at once to a maximum of {best[0]:,.0f} at {best[1]:,}."
    capped = [level for level in sweep.levels if is_capped(level)]
    if capped:
        ran = capped[0]["engine"]["running_most"]
        words += f" From {capped[0]['concurrency']:,} at once the engine ran at most {ran:,} and queued the rest."
    return words


def _throughput_row(level: Level) -> tuple[str, ...]:
    engine = level["engine"]
    ran = "unknown" if engine is None else f"{engine['running_most']:,} + {engine['queued']:,.0f}"
    return (
        f"{level['concurrency']:,}",
        f"{level['output_tokens_per_second']['mean']:,.1f}",
        f"{level['prompt_tokens_per_second']['mean']:,.0f}",
        f"{level['requests_per_second']['mean']:,.2f}",
        f"{level['requests']['failed']:,}",
        ran + (" (capped)" if is_capped(level) else ""),
    )


def _latency(sweep: Sweep, key: str, words: Sequence[str], of: str, id_: str) -> Markup:
    name, meaning = words
    levels = [level for level in sweep.levels if level[key]]
    if not levels:
        return figure(name, meaning, element("p", "No answer had enough tokens.", class_="none"), None)
    lines = [
        Series(part, tuple(Point(level["concurrency"], level[key][part]) for level in levels), look)
        for part, look in PERCENTILES
    ]
    last = levels[-1]
    percentiles = ", ".join(f"{part} {short(last[key][part])} ms" for part in ("p50", "p95", "p99"))
    chart = Chart(
        f"{name}, time {meaning}, against requests at once, {of}",
        f"At {last['concurrency']:,} at once: {percentiles}. The millisecond axis is logarithmic.",
        AT_ONCE,
        tuple(lines),
    )
    x = powers_of_two([level["concurrency"] for level in levels], LEFT, RIGHT)
    y = decades([point.y for line in lines for point in line.points], BOTTOM, TOP)
    return figure(name, f"ms {meaning}, log scale", line_chart(chart, x, y, id_), _latency_table(levels, key, chart))


def _latency_table(levels: Sequence[Level], key: str, chart: Chart) -> Markup:
    rows = [_statistics(f"{level['concurrency']:,}", level[key]) for level in levels]
    return table(("at once", *STATISTICS), rows, chart.title)


def _statistics(first: str, found: dict[str, float]) -> tuple[str, ...]:
    """A row of STATISTICS."""
    return first, *(f"{found[part]:,.2f}" for part in ("mean", "p50", "p95", "p99")), f"{found['count']:,}"


def _single(level: Level, result: Result, of: str, id_: str) -> Markup:
    strips = [
        Strip(name, *(max(level[key][part], 1e-4) for part in ("p50", "p95", "p99")))
        for key, name, _ in LATENCIES
        if level[key]
    ]
    rate = level["output_tokens_per_second"]["mean"]
    title = f"Latency percentiles at {level['concurrency']:,} at once, {lengths(level)}, {of}"
    percentiles = "; ".join(f"{s.name} p50 {short(s.p50)}, p95 {short(s.p95)}, p99 {short(s.p99)} ms" for s in strips)
    rows = [_statistics(name, level[key]) for key, name, _ in LATENCIES if level[key]]
    drawn = strip_chart(title, f"{percentiles}. The axis is logarithmic.", strips, id_)
    at_once = "One request at a time" if level["concurrency"] == 1 else f"{level['concurrency']:,} at once"
    about = f"{rate:,.1f} tokens/s; {lengths(level)}; {result['began'][:10]}"
    return figure(at_once, about, drawn, table(("figure", *STATISTICS), rows, title))


def _history(history: LevelHistory, of: str, id_: str) -> Markup:
    at_once, *tokens = history.key
    points = [Point(run_rate.time, run_rate.rate) for run_rate in history.rates]
    events = [
        (after.time, f"release {after.release}")
        for earlier, after in pairwise(history.rates)
        if after.release != earlier.release
    ]
    sizes = f"{at_once:,} at once; {tokens[0]:,} tokens in, {tokens[1]:,} out"
    first, last = history.rates[0], history.rates[-1]
    percent = 100 * (last.rate - first.rate) / first.rate
    chart = Chart(
        f"Output tokens per second over time, {sizes}, {of}",
        f"{len(points)} runs: {first.rate:,.1f} in the first, {last.rate:,.1f} in the last ({percent:+.1f} %).",
        "time of measurement (UTC)",
        (Series(short(last.rate), tuple(points), "one"),),
        tuple(events),
    )
    x = times([point.x for point in points], LEFT + 6, RIGHT - 6)
    y = from_zero(max(point.y for point in points), BOTTOM, TOP)
    rows = [
        (f"{datetime.fromtimestamp(one.time, UTC):%Y-%m-%d %H:%M} UTC", f"{one.rate:,.1f}", one.release or "-")
        for one in reversed(history.rates)
    ]
    drawn = line_chart(chart, x, y, id_)
    heads = ("measured", "out tok/s", "release")
    return figure("Over time", f"output tokens/s; {sizes}", drawn, table(heads, rows, chart.title))


def lengths(level: dict[str, Any]) -> str:
    """The sizes of a level's requests."""
    return f"{level['input']:,} tokens in, {level['output']:,} out"
