"""Progress reports of a benchmark."""

from __future__ import annotations

from typing import Any

from rigup.operations.primitives.progress import Progress, report


def show(host: str, service: str, state: dict[str, Any]) -> None:
    """Reports the progress of a level."""
    failed = f", {state['failed']} failed" if state["failed"] else ""
    level = f"{state['concurrency']} at once, {state['input']} in, {state['phase']}"
    text = f"{service} {level}: {state['ended']} answers{failed}"
    in_window = state["phase"] == "window"
    done, total, unit = (state["ended"], state["of_requests"], "requests") if state["of_requests"] else (0, 0, "")
    if state["of_s"]:
        done, total, unit = (int(state["elapsed_s"]), int(state["of_s"]), "s") if in_window else (0, 0, "")
    report(Progress(host, "bench", done, total, unit, text.strip()))
