"""The client of `rigup bench` carries as many streams as it is asked for; how fast is for its benchmark to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks/bench_client.py"


@pytest.mark.slow
@pytest.mark.rests_on("benchmarks of services")
def test_it_holds_1024_streams() -> None:
    words = [sys.executable, str(PROGRAM), "--smallest"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1024 streams at once" in done.stdout
