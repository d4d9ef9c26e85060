"""Samples the engine's running and queued requests, and the GPUs by NVML, twice a second.

Separate processes take the samples, since a hanging driver may never answer. Needs nvidia-ml-py where
GPUs are watched.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rigup.programs.bench.bench_endpoint import metric
from rigup.programs.bench.bench_statistics import percentile
from rigup.programs.bench.bench_target import EndpointError, Target, ask

EVERY_SECONDS = 0.5
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
QUEUED = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")

# nvml.h: nvmlClocksEventReasons and nvmlClockType_t; the words are probe_gpus.py's
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
_PROCESSORS = 1

Sample = dict[str, Any]


class Watch:
    """One process that takes samples. Must be created before any thread starts."""

    def __init__(self, samples: Callable[[], Iterator[Sample]]) -> None:
        reading, writing = os.pipe()
        parent = os.getpid()
        self._child = os.fork()
        if not self._child:
            _child(samples, reading, writing, parent)
        os.close(writing)
        self._pipe = os.fdopen(reading)
        self.samples: list[Sample] = []

    def listen(self) -> None:
        """Starts collecting samples."""
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        for line in self._pipe:
            self.samples.append(json.loads(line))

    def between(self, begin: float, end: float) -> list[Sample]:
        """The samples within this time; if there are none, the latest one from shortly before."""
        within = [sample for sample in self.samples if begin <= sample.get("time", 0.0) <= end]
        return within or [sample for sample in self.samples if begin - 2 <= sample.get("time", 0.0) <= end][-1:]

    def stop(self) -> None:
        """Ends the process without waiting for one that hangs in a driver."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, os.WNOHANG)


def _child(samples: Callable[[], Iterator[Sample]], reading: int, writing: int, parent: int) -> None:
    """Writes non-empty samples until the reader is gone. Never returns."""
    try:
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for sample in samples():
            if os.getppid() != parent:
                break
            if sample:
                os.write(writing, json.dumps({"time": time.monotonic(), **sample}).encode() + b"\n")
            time.sleep(EVERY_SECONDS)
    finally:
        os._exit(0)


def of_engine(target: Target, path: str = "/metrics") -> Iterator[Sample]:
    """How many requests the engine runs and queues, from its metrics; ends if the engine has no such metrics.

    Yields an empty sample while the engine does not answer.
    """
    while True:
        try:
            status, body = ask(target, path, seconds=5)
        except EndpointError:
            yield {}
            continue
        text = body[0].decode(errors="replace") if status == 200 else ""
        running = metric(text, *RUNNING)
        if running is None:
            return
        yield {"running": running, "queued": metric(text, *QUEUED) or 0.0}


def of_gpus() -> Iterator[Sample]:
    """Power, memory, temperature and clock of every GPU, and what holds it down; None for what is not reported."""
    import pynvml

    def maybe(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except pynvml.NVMLError:
            return None

    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    names = [str(maybe(pynvml.nvmlDeviceGetName, handle) or "") for handle in handles]
    highest = [maybe(pynvml.nvmlDeviceGetMaxClockInfo, handle, _PROCESSORS) for handle in handles]
    while True:
        found = []
        for index, handle in enumerate(handles):
            power, memory = maybe(pynvml.nvmlDeviceGetPowerUsage, handle), maybe(pynvml.nvmlDeviceGetMemoryInfo, handle)
            reasons = maybe(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
            found.append(
                {
                    "gpu": index,
                    "name": names[index],
                    "power_w": None if power is None else power / 1000,
                    "memory_mib": None if memory is None else memory.used // 2**20,
                    "temperature_c": maybe(pynvml.nvmlDeviceGetTemperature, handle, 0),
                    "clock_mhz": maybe(pynvml.nvmlDeviceGetClockInfo, handle, _PROCESSORS),
                    "highest_clock_mhz": highest[index],
                    "held_back": None if reasons is None else [word for bit, word in REASONS.items() if reasons & bit],
                }
            )
        yield {"gpus": found}


def load_of_engine(samples: list[Sample], concurrency: int) -> Sample | None:
    """The engine's load at this concurrency; None without samples.

    capped: the engine never ran all requests, and had some queued at least half of the time.
    """
    if not samples:
        return None
    queued = sorted(sample["queued"] for sample in samples)
    most = max(sample["running"] for sample in samples)
    usually = percentile(queued, 0.5)
    return {
        "running_most": int(most),
        "running": sum(sample["running"] for sample in samples) / len(samples),
        "queued_most": int(queued[-1]),
        "queued": usually,
        "capped": bool(usually >= 1 and most < concurrency),
        "samples": len(samples),
    }


def load_of_gpus(samples: list[Sample]) -> list[Sample]:
    """Each GPU over the samples: power, memory, temperature, clock, and in what share each reason held it back."""
    rows: dict[int, list[Sample]] = {}
    for sample in samples:
        for gpu in sample["gpus"]:
            rows.setdefault(gpu["gpu"], []).append(gpu)
    return [
        {
            "gpu": index,
            "name": found[0]["name"],
            "power_w": _over(found, "power_w", _mean),
            "power_most_w": _over(found, "power_w", max),
            "memory_most_mib": _over(found, "memory_mib", max),
            "temperature_most_c": _over(found, "temperature_c", max),
            "clock_mhz": _over(found, "clock_mhz", _mean),
            "clock_least_mhz": _over(found, "clock_mhz", min),
            "highest_clock_mhz": _over(found, "highest_clock_mhz", max),
            "held_back": _shares([row["held_back"] for row in found if row["held_back"] is not None]),
        }
        for index, found in rows.items()
    ]


def _over(rows: list[Sample], key: str, reduce: Callable[[list[float]], float]) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return reduce(values) if values else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _shares(samples: list[list[str]]) -> dict[str, float] | None:
    """By reason, the share of the samples that have it; None without samples."""
    words = dict.fromkeys(word for sample in samples for word in sample)
    return {word: sum(word in sample for sample in samples) / len(samples) for word in words} if samples else None
