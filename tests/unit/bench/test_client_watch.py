"""What is watched beside the load: metrics of each engine, and GPUs by NVML."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from rigup.programs.bench.bench_endpoint import metric
from rigup.programs.bench.bench_target import Target
from rigup.programs.bench.bench_watch import (
    QUEUED,
    REASONS,
    RUNNING,
    Watch,
    load_of_engine,
    load_of_gpus,
    of_engine,
    of_gpus,
)
from rigup.programs.probe_gpus import _REASONS
from tests.unit.bench.conftest import PROGRAM
from tests.unit.programs.conftest import wait_for

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 255.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.68e+02
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 768.0
"""
SGLANG = 'sglang:num_running_reqs{model_name="m",tp_rank="0"} 12\nsglang:num_queue_reqs{model_name="m"} 3.0\n'
LLAMA = "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 4\nllamacpp:requests_deferred 2\n"


@pytest.mark.parametrize(
    ("text", "running", "queued"), [(VLLM, 256, 768), (SGLANG, 12, 3), (LLAMA, 4, 2), ("up 1\n", None, None)]
)
def test_running_and_queued_requests_of_each_engine(text: str, running: object, queued: object) -> None:
    assert (metric(text, *RUNNING), metric(text, *QUEUED)) == (running, queued)


@pytest.mark.parametrize(
    ("running", "queued", "concurrency", "capped"),
    [
        ((512, 512, 512), (512, 512, 512), 1024, True),
        ((1024, 1000, 1024), (0, 0, 24), 1024, False),  # requests that wait for a moment are no cap
        ((8, 8, 8), (0, 0, 0), 16, False),
        ((16, 16, 16), (1, 2, 1), 16, False),  # somebody else's requests wait too
    ],
)
def test_what_is_called_a_cap(
    running: tuple[int, ...], queued: tuple[int, ...], concurrency: int, capped: bool
) -> None:
    samples = [{"running": r, "queued": q} for r, q in zip(running, queued, strict=True)]
    found = load_of_engine(samples, concurrency)
    assert found is not None
    assert (found["running_most"], found["capped"]) == (max(running), capped)


def test_gpus_over_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    watts, clocks, reasons = (
        iter([250_000, 150_000, 350_000, 250_000]),
        iter([1900, 1800, 1500, 1700]),
        iter([0x4, 0x44]),
    )

    def without_sensor(handle: int, *rest: Any) -> int:
        if handle:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 61

    answers = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: "NVIDIA GeForce RTX 3090",
        "nvmlDeviceGetPowerUsage": lambda handle: next(watts),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=(handle + 1) * 2**30),
        "nvmlDeviceGetTemperature": without_sensor,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 2100 if kind == 1 else 0,
        "nvmlDeviceGetClockInfo": lambda handle, kind: next(clocks) if kind == 1 else 0,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: without_sensor(handle) and next(reasons),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(pynvml, name, answer)
    asked = of_gpus()
    rows = load_of_gpus([next(asked), next(asked)])
    common = {"name": "NVIDIA GeForce RTX 3090", "highest_clock_mhz": 2100}
    first = {"power_w": 300, "power_most_w": 350, "memory_most_mib": 1024, "temperature_most_c": 61}
    second = {"power_w": 200, "power_most_w": 250, "memory_most_mib": 2048, "temperature_most_c": None}
    held = {"power cap": 1.0, "hardware thermal": 0.5}
    assert rows == [
        {"gpu": 0, **common, **first, "clock_mhz": 1700, "clock_least_mhz": 1500, "held_back": held},
        {"gpu": 1, **common, **second, "clock_mhz": 1750, "clock_least_mhz": 1700, "held_back": None},
    ]


def test_what_holds_a_clock_down_has_the_words_of_the_probe() -> None:
    assert REASONS == _REASONS


def test_the_watch_of_a_level_shorter_than_its_pause_is_the_sample_before_it() -> None:
    watch = Watch.__new__(Watch)
    watch.samples = [{"time": time, "running": 1} for time in (10.0, 10.5, 11.0)]
    assert [sample["time"] for sample in watch.between(10.2, 11.2)] == [10.5, 11.0]
    assert [sample["time"] for sample in watch.between(10.6, 10.7)] == [10.5]
    assert watch.between(20.0, 21.0) == []


def test_an_engine_that_refuses_is_asked_no_faster_than_one_that_answers() -> None:
    with refusing() as target:
        asked = of_engine(target)
        assert [next(asked), next(asked)] == [{}, {}]  # after each the watch pauses


WATCHING = """
import sys, time
from rigup.programs.bench.bench_target import Target
from rigup.programs.bench.bench_watch import Watch, of_engine
watch = Watch(lambda: of_engine(Target.of(sys.argv[1], None)))
print(watch._child, flush=True)
time.sleep(60)
"""


def test_a_watch_of_an_engine_that_refuses_ends_with_the_process_that_started_it() -> None:
    with refusing() as target:
        words = [sys.executable, "-c", WATCHING, target.url]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
            assert started.stdout
            child = int(started.stdout.readline())
            assert runs(child)
            started.kill()
        wait_for(lambda: not runs(child), "the end of the watch")


@contextmanager
def refusing() -> Iterator[Target]:
    """An endpoint at which connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield Target.of(f"http://127.0.0.1:{taken.getsockname()[1]}", None)


def runs(process: int) -> bool:
    """Whether it is there and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_mock_says_what_the_engines_say() -> None:
    assert all(name in PROGRAM.read_text() for name in (*RUNNING, *QUEUED))
