"""Mock endpoints with known delays and faults, and the measuring program run against them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.bench.client import BenchRequest, LevelRequest
from rigup.bench.local import follow_here
from rigup.bench.result import LineCollector

PROGRAM = Path(__file__).with_name("mock_endpoint.py")


class Engine:
    """One mock, and what it says of itself."""

    def __init__(self, settings: dict[str, Any]) -> None:
        words = [sys.executable, "-I", str(PROGRAM), json.dumps(settings)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def times(self) -> dict[str, list[tuple[float, float]]]:
        """By request, when each token was sent: before and after, in seconds of the monotonic clock."""
        with urllib.request.urlopen(f"{self.url}/times", timeout=60) as answer:
            found: dict[str, list[tuple[float, float]]] = json.load(answer)
        return found

    def stop(self) -> None:
        """Ends the process, and with it every connection."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    """Starts mocks, which end with the test: `engine(style="vllm", ttft=0.1)`."""
    started: list[Engine] = []

    def start(**settings: Any) -> Engine:
        started.append(Engine(settings))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def measure(url: str, *levels: LevelRequest, key: str | None = None, **wanted: Any) -> dict[str, Any]:
    """Runs the measuring program as `rigup bench --url` does."""
    asked = BenchRequest(levels, **{"warmup": 0, **wanted})
    collected = LineCollector("", lambda said: None)
    last_words = follow_here(asked.request(url, key), collected)
    return collected.result(asked, {"host": "here", "service": "mock", "plan": None}, last_words)
