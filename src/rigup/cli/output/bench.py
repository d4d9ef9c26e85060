"""Shows benchmark results: tables like the engines' own, CSV, and comparisons."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from rigup.bench.comparison import FAILED, FigureChange
from rigup.cli.output.console import Console
from rigup.cli.output.table import Column, Table

LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms")
STATISTICS = ("mean", "p50", "p95", "p99")
STATISTIC_RANKS = {"p50": 0, "p99": 1, "mean": 2, "p95": 3}
"""Which of them a narrow terminal shows first."""
COLOURS = {"better": "green", "worse": "red", "noise": "dim", "unknown": ""}


def show_result(result: dict[str, Any], console: Console) -> None:
    """Prints one result: the endpoint, a row per level, single runs if they are few, and notes."""
    endpoint = result["endpoint"]
    engine = f"{endpoint.get('engine', '')} {endpoint.get('version', '')}".strip()
    console.say((f"{result['host']} {result['service']}", "bold"), f": {endpoint.get('model', '')} on {engine}")
    console.print(_levels(result), soft_wrap=True)
    console.say(("latencies in ms", "dim"))
    for level in result["levels"]:
        if level["concurrency"] == 1 and level["each"]:
            runs = ", ".join(f"{run['tokens'] / run['seconds']:.1f}" for run in level["each"])
            console.say(f"  {level['input']:,} in, {level['output']} out, each request separately: {runs} tok/s")
        for error, count in level["failures"].items():
            console.say("  ", (f"{level['concurrency']} at once: {count}x {error}", "red"))
    for line in (*_gpus(result["levels"]), *_lateness(result["levels"])):
        console.say(f"  {line}")
    for note in result["notes"]:
        console.say("  ", (note, "yellow"))


def _levels(result: dict[str, Any]) -> Table:
    latencies = [
        Column(f"{name[:-3].upper()} {statistic}", rank=rank + 10 * STATISTIC_RANKS[statistic], right=True)
        for rank, name in enumerate(LATENCIES, 1)
        for statistic in STATISTICS
    ]
    head = (("at once", 0), ("in", 5), ("out", 6), ("out tok/s", 0), ("in tok/s", 7), ("req/s", 8))
    tail = (("failed", 9), ("run + queued", 4))
    table = Table(
        (*(Column(*one, right=True) for one in head), *latencies, *(Column(*one, right=True) for one in tail))
    )
    for level in result["levels"]:
        rates = (level[f"{name}_per_second"]["mean"] for name in ("output_tokens", "prompt_tokens", "requests"))
        output, prompt, requests = rates
        failed, engine = level["requests"]["failed"], level["engine"]
        table.add(
            str(level["concurrency"]),
            f"{level['input']:,}",
            str(level["output"]),
            f"{output:,.1f}" if output < 100 else f"{output:,.0f}",
            f"{prompt:,.0f}",
            f"{requests:.2f}",
            *(_short(level[name][statistic]) if level[name] else "" for name in LATENCIES for statistic in STATISTICS),
            Text(f"{failed}", "red" if failed else ""),
            _engine(engine),
        )
    return table


def _short(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _engine(engine: dict[str, Any] | None) -> Text:
    """Requests that the engine ran and queued; coloured if the engine capped them below the concurrency."""
    if engine is None:
        return Text("unknown")
    text = f"{engine['running_most']} + {engine['queued']:.0f}"
    return Text(f"{text} capped", "yellow") if engine["capped"] else Text(text)


def _gpus(levels: Sequence[dict[str, Any]]) -> list[str]:
    """A line per GPU, over all levels."""
    found: dict[int, list[dict[str, Any]]] = {}
    for level in levels:
        for gpu in level["gpus"]:
            found.setdefault(gpu["gpu"], []).append(gpu)
    return [f"GPU {index} {rows[0]['name']}: {_over(rows)}" for index, rows in found.items()]


def _over(rows: list[dict[str, Any]]) -> str:
    figures = (("power_most_w", "{:.0f} W"), ("memory_most_mib", "{:.0f} MiB"), ("temperature_most_c", "{:.0f} °C"))
    known = [(text, [row[key] for row in rows if row[key] is not None]) for key, text in figures]
    return ", ".join(f"at most {text.format(max(values))}" for text, values in known if values) or "no readings"


def _lateness(levels: Sequence[dict[str, Any]]) -> list[str]:
    known = [level["client"]["late_ms"] for level in levels if level["client"]["late_ms"]]
    if not known:
        return []
    busiest = max(level["client"]["busy"] for level in levels)
    return [
        f"the client read data {max(late['p50'] for late in known):.2f} ms (p50) and "
        f"{max(late['p99'] for late in known):.2f} ms (p99) after arrival (not in the figures); "
        f"busy {busiest:.0%} at most"
    ]


def as_csv(results: Sequence[dict[str, Any]]) -> str:
    """CSV with a header and a row per level; a missing figure is an empty field."""
    out = io.StringIO()
    names = [f"{name[:-3]}_{statistic}_ms" for name in LATENCIES for statistic in STATISTICS]
    counts = ("counted", "failed")
    rates = ("output_tokens_per_second", "prompt_tokens_per_second", "requests_per_second")
    head = ("host", "service", "model", "began", "complete", "concurrency", "input", "output")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*head, *rates, *names, *counts, "running_most", "queued", "capped", "plan"))
    for result in results:
        model = result["endpoint"].get("model", "")
        for level in result["levels"]:
            engine = level["engine"] or {"running_most": "", "queued": "", "capped": ""}
            writer.writerow(
                (
                    *(result["host"], result["service"], model, result["began"], level["complete"]),
                    *(level["concurrency"], level["input"], level["output"]),
                    *(round(level[rate]["mean"], 3) for rate in rates),
                    *(round(level[n][s], 3) if level[n] else "" for n in LATENCIES for s in STATISTICS),
                    *(level["requests"][count] for count in counts),
                    *(engine["running_most"], engine["queued"], engine["capped"], result["plan"] or ""),
                )
            )
    return out.getvalue()


def show_changes(
    changes: Sequence[FigureChange],
    differ: Sequence[tuple[str, Any, Any]],
    results: tuple[dict[str, Any], dict[str, Any]],
    console: Console,
) -> None:
    """Prints a row per figure, and other differences between the two results."""
    for name, old, new in differ:
        console.say(f"{name}: {old} -> {new}")
    for result in results:
        if not result["complete"]:
            console.say((f"the run of {result['began']} is incomplete: {result['why']}", "yellow"))
    table = Table(
        (
            *(Column(name, rank, right=True) for name, rank in (("at once", 0), ("in", 3), ("out", 4))),
            Column("figure", narrowest=12),
            *(
                Column(name, rank, right=True)
                for name, rank in (("before", 2), ("after", 1), ("change", 0), ("noise", 5))
            ),
            Column("verdict", narrowest=10),
        )
    )
    for change in changes:
        unit = "points" if change.figure == FAILED else "%"
        noise = "?" if change.noise is None else f"± {change.noise:.1f} {unit}"
        verdict = {"noise": "within noise", "unknown": "too few requests to tell"}.get(change.verdict, change.verdict)
        table.add(
            *(f"{value:,}" for value in (change.concurrency, change.input, change.output)),
            change.figure.replace("_per_second", "/s").replace("_percent", " %").replace("_", " "),
            _short(change.before),
            _short(change.after),
            f"{change.percent:+.1f} {unit}",
            noise,
            verdict,
            style=COLOURS[change.verdict],
        )
    console.print(table, soft_wrap=True)


def changes_as_json(changes: Sequence[FigureChange], differ: Sequence[tuple[str, Any, Any]]) -> dict[str, Any]:
    """The comparison for scripts; schema 1."""
    conditions = [{"name": name, "before": old, "after": new} for name, old, new in differ]
    return {"schema": 1, "conditions": conditions, "changes": [asdict(change) for change in changes]}
