"""What pages are made of in tests: results of benchmarks as a simple model of an engine gives them, hosts in any state.

The model is of a rehearsal: an answer's tokens come slower the more requests run, and beyond `room` requests wait.
"""

from __future__ import annotations

import math
import random
from typing import Any

from rigup.cli.page.content import (
    DriftItem,
    Error,
    FleetContent,
    HostContent,
    PageOrigin,
    ReleaseItem,
    ServiceContent,
    State,
    Version,
)
from rigup.cli.page.memory_bar import GpuUse

SWEEP = tuple(2**n for n in range(11))
ORIGIN = PageOrigin("homelab", "2026-11-21 20:15:00 UTC", "0.1.0", "3f" * 32, "9bdbc17" + "0" * 33)
HOSTILE = "<script>alert(1)</script>\"'&]]>--><svg onload=x>"


def level(concurrency: int, seed: int = 1, room: int = 256, base: float = 60.0, lengths: Any = (2048, 512)) -> Any:
    """One level. room: how many requests the engine runs at once. base: tokens a second of one request alone."""
    noise = random.Random(f"{seed} {concurrency}")
    running = min(concurrency, room)
    each = base / (1 + running / 24)
    queued = concurrency - running
    tpot = 1000 / each * noise.uniform(0.99, 1.01)
    ttft = 90 * (1 + running / 12) + queued * 30
    rate = running * each * noise.uniform(0.98, 1.02)
    return {
        "concurrency": concurrency,
        "input": lengths[0],
        "output": lengths[1],
        "complete": True,
        "requests": {"counted": 4 * concurrency, "all": 4 * concurrency, "failed": 0, "broken_off": 0},
        "failures": {},
        "window_s": 30.0,
        "output_tokens_per_second": {"mean": rate, "parts": [rate]},
        "prompt_tokens_per_second": {"mean": rate * lengths[0] / lengths[1], "parts": [rate]},
        "requests_per_second": {"mean": rate / lengths[1], "parts": [rate]},
        "ttft_ms": _spread(ttft, 1.25 + math.log2(concurrency) / 12, 4 * concurrency),
        "tpot_ms": _spread(tpot, 1.06, 4 * concurrency),
        "itl_ms": _spread(tpot * 0.97, 1.5, 2000 * concurrency),
        "engine": {"running_most": running, "queued": float(queued), "capped": queued > 0},
        "gpus": [],
        "client": {"busy": 0.1, "late_ms": None},
        "each": [],
    }


def _spread(middle: float, wide: float, count: int) -> dict[str, Any]:
    parts = {"mean": [middle], "p50": [middle], "p99": [middle]}
    most = middle * wide**2
    return {
        "count": count,
        "mean": middle * 1.02,
        "p50": middle,
        "p95": middle * wide,
        "p99": most,
        "most": most,
        "parts": parts,
    }


def result(began: str, concurrencies: tuple[int, ...] = SWEEP, release: str = "4", **said: Any) -> dict[str, Any]:
    """One run of `rigup bench`. said: for `level`."""
    levels = [level(concurrency, seed=hash_of(began), **said) for concurrency in concurrencies]
    return {
        "schema": 1,
        "host": "gpu1.lan",
        "service": "chat",
        "endpoint": {"engine": "vllm", "version": "0.33.0", "model": "minimax-m2.5"},
        "began": began,
        "ended": began,
        "complete": True,
        "why": "",
        "release": release,
        "drift": [],
        "plan": "sha256:00",
        "left_out": [],
        "levels": levels,
        "notes": [],
    }


def hash_of(text: str) -> int:
    """The same number in every process."""
    return sum(ord(letter) * pow(31, place, 2**32) for place, letter in enumerate(text)) % 2**32


def results() -> tuple[dict[str, Any], ...]:
    """A service's results, newest first: two sweeps and single runs over three weeks."""
    single: dict[str, Any] = {"concurrencies": (1,), "lengths": (256, 100)}
    days = (("01", "2", 52.0), ("06", "3", 53.0), ("11", "3", 52.6), ("16", "4", 60.0), ("21", "4", 60.4))
    runs = [result(f"2026-11-{day}T08:00:00Z", release=release, base=base, **single) for day, release, base in days]
    runs.append(result("2026-11-06T09:00:00Z", release="3", base=52.0, room=128))
    runs.append(result("2026-11-21T09:00:00Z"))
    return tuple(sorted(runs, key=lambda run: str(run["began"]), reverse=True))


def uses(count: int = 4, measured: int | None = 22_900) -> tuple[GpuUse, ...]:
    """The memory of so many cards."""
    name = "GeForce RTX 3090"
    return tuple(GpuUse(n, name, 24576, 23140, measured and measured + 60 * n, 19046, 2150, 1944) for n in range(count))


def service(name: str = "chat", **said: Any) -> ServiceContent:
    """A service that answers. said: fields of it."""
    used = {"gpu_memory_used_mib": 4 * 22990, "gpu_memory_mib": 4 * 24576, "release": "4"}
    made: dict[str, Any] = {
        "row": {"health": "answers", "seconds": 0.41, "drift": "none", **used},
        "serves": "MiniMax-M2.1-GGUF UD-IQ2_M",
        "engine": "llama.cpp b11434",
        "facts": (("unit", "active, release 4"), ("up", "4d 2h"), ("context", "65,536 tokens")),
        "memory": uses(),
        "releases": (
            ReleaseItem(4, "2026-11-16 07:12:09 UTC", True, True, ("build llama.cpp-b11100 -> llama.cpp-b11434",)),
            ReleaseItem(3, "2026-11-05 18:40:00 UTC", False, True, ("--parallel 4 -> 8", "+ --flash-attn on")),
            ReleaseItem(2, "2026-10-30 11:03:51 UTC", False, False, ()),
        ),
        "results": results(),
    }
    return ServiceContent(name, **{**made, **said})


def host(name: str = "gpu1.lan", state: State = "in order", **said: Any) -> HostContent:
    """A host with one service. said: fields of it."""
    made: dict[str, Any] = {
        "facts": (("GPUs", "4 × RTX 3090"), ("hottest GPU", "61 °C"), ("system", "Debian 12")),  # noqa: RUF001
        "versions": (Version("driver", "580.178.04", "580.178.04"), Version("kernel", "6.1.0-41-amd64", "")),
        "services": (service(),),
    }
    return HostContent(name, "quad_3090", state, **{**made, **said})


def fleet(*hosts: HostContent) -> FleetContent:
    """A fleet of these; without any, one host in each state."""
    power = DriftItem("power", "GPU 2 has 350 W; declared: 280 W")
    drifted = (DriftItem("driver", "590.48.01, lock 580.178.04"), power)
    behind = (Version("driver", "590.48.01", "580.178.04"), Version("kernel", "6.1.0-41-amd64", "6.1.0-42-amd64"))
    silent = {"health": "no answer", "drift": "state", "seconds": None}
    stopped = (DriftItem("state", "rigup-chat.service is failed"),)
    away = Error("gpu4.lan: connection refused", "is it on, and does ssh gpu4.lan work?")
    return FleetContent(
        ORIGIN,
        hosts
        or (
            host(),
            host("gpu2.lan", "drifted", drift=drifted, versions=behind, services=(service(results=results()[-1:]),)),
            host(
                "gpu3.lan",
                "no answer",
                services=(service(row=silent, memory=uses(4, 3), drift=stopped, results=()),),
                errors=(Error("gpu3.lan: chat: no answer within 60 s: connection refused"),),
            ),
            HostContent("gpu4.lan", "quad_3090", "unreachable", errors=(away,)),
        ),
    )
