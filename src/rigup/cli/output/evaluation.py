"""Shows evaluation scores and differences as tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from rigup.evaluation.comparison import ScoreDifference

COLOURS = {"better": "green", "worse": "red", "unknown": "yellow"}
Conditions = Sequence[tuple[str, Any, Any]]


def show_result(result: dict[str, Any], console: Console) -> None:
    """Prints a row per score, with its standard error."""
    from rich.markup import escape
    from rich.table import Table

    console.print(
        f"[bold]{escape(name_of(result['endpoint']))}[/], lm_eval {escape(result['harness'])}", soft_wrap=True
    )
    table = Table(box=None, pad_edge=False)
    for column in ("task", "score of", "value", "questions"):
        table.add_column(column, overflow="fold")
    for task, scores in result["tasks"].items():
        for score in scores["scores"]:
            cells = (task, _metric(score["metric"], score["filter"]), _value(score), str(scores["questions"] or "-"))
            table.add_row(*map(escape, cells))
    console.print(table)


def name_of(endpoint: dict[str, Any]) -> str:
    """The service and what it served."""
    checkpoint = endpoint.get("checkpoint") or {}
    what = f"{checkpoint.get('repo', '')} {checkpoint.get('quant', '')}".strip() or endpoint["model"]
    engine = f" on {endpoint['engine']} {endpoint['version']}" if endpoint.get("engine") else ""
    return f"{' '.join(part for part in (endpoint['host'], endpoint.get('service')) if part)}: {what}{engine}"


def _metric(metric: str, kind: str) -> str:
    return metric if kind in ("none", "") else f"{metric} ({kind})"


def _value(score: dict[str, Any]) -> str:
    stderr = score["stderr"]
    return f"{score['value']:.4f}" + (f" +- {stderr:.4f}" if stderr is not None else "")


def show_differences(
    found: Sequence[ScoreDifference],
    differ: Conditions,
    results: tuple[dict[str, Any], dict[str, Any]],
    console: Console,
) -> None:
    """Prints the two results, differences in their conditions, and a row per score."""
    from rich.markup import escape
    from rich.table import Table

    for mark, result in zip("AB", results, strict=True):
        console.print(f"{mark}  {name_of(result['endpoint'])}, {result['began']}", markup=False, soft_wrap=True)
    for what, before, after in differ:
        words = f"different conditions: {what}: {_shown(before)} and {_shown(after)}"
        console.print(words, style="yellow", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for column in ("task", "score of", "A", "B", "difference", ""):
        table.add_column(column, overflow="fold")
    for one in found:
        stderr = f" +- {one.stderr:.4f}" if one.stderr is not None else ""
        paired = ", paired by question" if one.paired else ""
        verdict = one.verdict + (f": {one.why}" if one.why else "")
        figures = (f"{one.before:.4f}", f"{one.after:.4f}", f"{one.change:+.4f}{stderr}{paired}")
        cells = (one.task, _metric(one.metric, one.filter), *figures, verdict)
        table.add_row(*map(escape, cells), style=COLOURS.get(one.verdict))
    console.print(table)


def _shown(value: Any) -> str:
    return "unknown" if value is None else str(value)


def differences_as_json(found: Sequence[ScoreDifference], differ: Conditions) -> dict[str, Any]:
    """The comparison as plain values."""
    conditions = [{"what": what, "before": before, "after": after} for what, before, after in differ]
    differences = [{**asdict(one), "change": one.change} for one in found]
    return {"schema": 1, "conditions": conditions, "differences": differences}
