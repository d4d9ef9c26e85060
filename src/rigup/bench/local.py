"""Runs the benchmark client on this machine, for an endpoint given by its address."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

from rigup.bench.client import BOOT, program
from rigup.bench.result import LineCollector

STOP_SECONDS = 30.0
STOPPING = b"\nstopping: measured results are kept (press Ctrl-C again to quit at once)\n"


def follow_here(request: dict[str, Any], collected: LineCollector) -> str:
    """Runs the client; returns its last output if it ends early. The first Ctrl-C asks it for partial results."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", BOOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        complaints: list[str] = []
        reader = threading.Thread(target=lambda: complaints.extend(process.stderr or ()), daemon=True)
        reader.start()
        try:
            process.stdin.write(program(request))
            process.stdin.flush()
            _read(process, collected)
        except BaseException:
            process.kill()
            raise
        process.wait()
        reader.join(1)
    lines = [line.strip() for line in complaints if line.strip()]
    return lines[-1] if lines else ""


def _read(process: subprocess.Popen[str], collected: LineCollector) -> None:
    """Takes every line. A handler takes Ctrl-C: an exception could interrupt the processing of a line."""
    assert process.stdin and process.stdout
    to_program = process.stdin

    def stop(_number: int, _frame: object) -> None:
        if to_program.closed:
            raise KeyboardInterrupt
        to_program.close()
        os.write(2, STOPPING)
        timer = threading.Timer(STOP_SECONDS, process.kill)
        timer.daemon = True
        timer.start()

    before = signal.signal(signal.SIGINT, stop)
    try:
        for line in process.stdout:
            collected.take(line)
    finally:
        signal.signal(signal.SIGINT, before)


def about_url(url: str, model: str) -> dict[str, Any]:
    """The description of an endpoint that is not in an inventory."""
    return {"host": url.partition("://")[2].partition("/")[0], "service": model, "plan": None}
