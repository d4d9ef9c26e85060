"""Progress reports of a benchmark."""

from __future__ import annotations

from typing import Any

from rigup.operations.primitives.progress import Progress, report


def show(host: str, service: str, said: dict[str, Any]) -> None:
    """Reports the progress of a level."""
    failed = f", {said['failed']} failed" if said["failed"] else ""
    text = (
        f"{service} {said['concurrency']} at once, {said['input']} in, {said['phase']}: {said['ended']} answers{failed}"
    )
    in_window = said["phase"] == "window"
    done, total, unit = (said["ended"], said["of_requests"], "requests") if said["of_requests"] else (0, 0, "")
    if said["of_s"]:
        done, total, unit = (int(said["elapsed_s"]), int(said["of_s"]), "s") if in_window else (0, 0, "")
    report(Progress(host, "bench", done, total, unit, text.strip()))
