"""Shows evaluation scores and differences as tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rigup.cli.output.console import Console
    from rigup.evaluation.comparison import ScoreDifference

COLOURS = {"better": "green", "worse": "red", "unknown": "yellow"}
Conditions = Sequence[tuple[str, Any, Any]]


def show_result(result: dict[str, Any], console: Console) -> None:
    """Prints a row per score, with its standard error."""
    from rigup.cli.output.table import Column, Table

    console.say((name_of(result["endpoint"]), "bold"), f", lm_eval {result['harness']}")
    table = Table(
        (Column("task", narrowest=16, middle=True), Column("score of"), Column("value"), Column("questions", rank=1))
    )
    for task, scores in result["tasks"].items():
        for score in scores["scores"]:
            table.add(task, _metric(score["metric"], score["filter"]), _value(score), str(scores["questions"] or "-"))
    console.print(table, soft_wrap=True)


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
    from rigup.cli.output.table import Column, Table

    for mark, result in zip("AB", results, strict=True):
        console.say(f"{mark}  {name_of(result['endpoint'])}, {result['began']}")
    for what, before, after in differ:
        first, second = ("unknown" if value is None else value for value in (before, after))
        console.say((f"different conditions: {what}: {first} and {second}", "yellow"))
    table = Table(
        (
            Column("task", narrowest=12, middle=True),
            Column("score of", narrowest=12, middle=True),
            Column("A", rank=2),
            Column("B", rank=1),
            Column("difference", narrowest=17),
            Column("verdict", narrowest=12),
        )
    )
    for one in found:
        stderr = f" +- {one.stderr:.4f}" if one.stderr is not None else ""
        paired = ", paired by question" if one.paired else ""
        verdict = one.verdict + (f": {one.why}" if one.why else "")
        figures = (f"{one.before:.4f}", f"{one.after:.4f}", f"{one.change:+.4f}{stderr}{paired}")
        table.add(one.task, _metric(one.metric, one.filter), *figures, verdict, style=COLOURS.get(one.verdict, ""))
    console.print(table, soft_wrap=True)


def differences_as_json(found: Sequence[ScoreDifference], differ: Conditions) -> dict[str, Any]:
    """The comparison as plain values."""
    conditions = [{"what": what, "before": before, "after": after} for what, before, after in differ]
    return {"schema": 1, "conditions": conditions, "differences": [asdict(one) for one in found]}
