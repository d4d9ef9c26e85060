"""What hosts, endpoints and files say is shown as it is: text in brackets is not markup, in whatever table or line."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.bench.comparison import FigureChange as Compared
from rigup.cli import apply, calibrate, diff, status
from rigup.cli.output import bench, evaluation
from rigup.cli.output import progress as live
from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.evaluation.comparison import ScoreDifference
from rigup.operations.primitives.progress import Progress
from rigup.operations.service.answer import Answer
from rigup.plan import Parallel
from rigup.run.drift import Drift
from rigup.run.result import Change, HostResult
from tests.unit.cli.page.page_content import level, result

SAID = "[red]x[/x]"
HOST = HostResult(SAID, "changed", [Change("service", SAID)], answers=[Answer(SAID, SAID, SAID, 9, 1.0, 9.0)])
ROW = {"host": SAID, "service": SAID, "health": SAID, "drift": SAID, "driver": SAID, "unit": SAID, "moe_config": SAID}
SERVICE = SimpleNamespace(name="chat", listen=SAID, port=8000)
PLANS = {SAID: (SimpleNamespace(service=SERVICE, members=(), served_name=SAID),)}
GPU = {"gpu": 0, "name": SAID, "power_most_w": None, "memory_most_mib": None, "temperature_most_c": None}
MEASURED = result("2026-11-21T08:00:00Z") | {
    "host": SAID,
    "service": SAID,
    "endpoint": {"engine": SAID, "version": SAID, "model": SAID},
    "levels": [level(1) | {"failures": {SAID: 1}, "gpus": [GPU], "client": {"late_ms": None, "busy": 0.1}}],
    "notes": [SAID],
}
CUT = {"began": SAID, "complete": False, "why": SAID}
SCORE = {"metric": SAID, "filter": SAID, "value": 0.5, "stderr": 0.1}
EVALUATED = {
    "harness": SAID,
    "began": SAID,
    "endpoint": {"host": SAID, "service": SAID, "model": SAID, "engine": SAID, "version": SAID},
    "tasks": {SAID: {"questions": 9, "scores": [SCORE]}},
}
HARNESS = ("lm_eval", SAID, SAID)
CHANGED = Compared(1, 1, 1, "ttft_ms p50", 1.0, 2.0, 100.0, None, "unknown")
CALIBRATED: Any = SimpleNamespace(
    kind=(SAID, SAID, SAID, 2, Parallel()), starts=3, runtime_mib=1, wanted_mib=None, why_not=SAID, left_out=[SAID],
    **dict.fromkeys(calibrate.COLUMNS),
)  # fmt: skip
DIFFERENCE = ScoreDifference(SAID, SAID, SAID, 0.5, 0.4, -0.1, 0.1, True, 9, "unknown", SAID)


def with_progress(console: Console) -> None:
    """Live progress in a terminal: a line above the bars, and a bar."""
    view = live.RichProgress()
    view.console = view.bars.live.console = console
    view.show(Progress(SAID, "log", text=SAID))
    view.show(Progress(SAID, SAID, text=SAID))
    console.print(view.bars.get_renderable())


# how often each says it
SHOWN: dict[str, tuple[Callable[[Console], Any], int]] = {
    "status": (lambda console: console.print(status.table([ROW])), 7),
    "changes": (lambda console: summary.show_changes([HOST], console), 2),
    "results": (lambda console: summary.show_results([HOST], console), 1),
    "answers": (lambda console: summary.show_answers([HOST], SAID, console), 4),
    "drift": (lambda console: diff.show_drift({SAID: (Drift(SAID, SAID, SAID, hint=SAID),)}, console), 5),
    "services": (lambda console: apply._how_to_look_around([HOST], PLANS, console), 3),
    "progress": (with_progress, 5),
    "bench": (lambda console: bench.show_result(MEASURED, console), 8),
    "bench --compare": (lambda console: bench.show_changes([CHANGED], [HARNESS], (CUT, CUT), console), 6),
    "plan --calibrate": (lambda console: calibrate._show([CALIBRATED], None, False, console), 11),
    "eval": (lambda console: evaluation.show_result(EVALUATED, console), 9),
    "eval --compare": (
        lambda console: evaluation.show_differences([DIFFERENCE], [HARNESS], (EVALUATED, EVALUATED), console),
        18,
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_text_in_brackets_is_shown_as_it_is(name: str) -> None:
    show, times = SHOWN[name]
    console = Console(file=io.StringIO(), width=400, highlight=False)
    show(console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count(SAID) == times, shown


def test_a_word_between_colons_stays_as_it_is() -> None:
    file = io.StringIO()
    Console(file=file, width=80).print("gpu1.lan: key :warning: and [bold]:key:[/]")
    assert file.getvalue() == "gpu1.lan: key :warning: and :key:\n"
