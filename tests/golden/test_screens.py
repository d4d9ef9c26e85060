"""What people see: the screens of verbs in terminals of three widths, with and without colour, and in a pipe.

One rig of eight cards, and a fleet of fifty hosts.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.cli import releases, status
from rigup.cli.output import bench, fit
from rigup.cli.output.console import Console
from rigup.operations.service.history import RetainedRelease
from rigup.plan import Speed
from rigup.project.fit_table import FitFilter
from tests.golden.golden import assert_golden
from tests.terminal import Terminal, describe, plain
from tests.unit.cli.page.page_content import result

WIDTHS = (80, 120, 200)


def _status_row(number: int) -> dict[str, Any]:
    """One of several kinds of hosts: most are as planned, some are not."""
    row: dict[str, Any] = {
        "host": f"gpu{number:02d}.rack{number // 10}.example.com",
        "service": "chat" if number % 3 else "embeddings",
        "release": str(3 + number % 4),
        "build": "vllm-0.33.0-3f4a1b2c",
        "checkpoint": {"repo": "MiniMaxAI/MiniMax-M2.5-AWQ-INT4", "quant": "AWQ"},
        "unit": "active",
        "up_seconds": 3600 * number,
        "driver": "580.178.04",
        "gpu_memory_used_mib": 180_000 + number,
        "gpu_memory_mib": 8 * 24_576,
        "gpu_temperature_c": 60 + number % 20,
        "health": "answers",
        "seconds": 0.2 + number / 100,
        "drift": "none",
    }
    if number % 17 == 5:
        return row | {"unit": "failed", "up_seconds": None, "health": "no answer", "seconds": None, "drift": "state"}
    if number % 17 == 11:
        return row | {"driver": "570.133.20, 580.178.04 installed", "drift": "driver, command, environment, packages"}
    if number % 17 == 16:
        return {"host": row["host"], "service": "chat", "health": "unreachable", "drift": "unknown"}
    return row


def _show_status(console: Console, hosts: int) -> None:
    console.print(status.table([_status_row(number) for number in range(1, hosts + 1)]), soft_wrap=True)


def _show_releases(console: Console, hosts: int) -> None:
    command = ["bin/vllm", "serve", "--max-model-len", "65536", "--tensor-parallel-size", "8"]
    template = '--chat-template-kwargs={"enable_thinking":true,"reasoning_effort":"high","tool_choice":"automatic"}'
    build = {"build": "vllm-0.33.0-3f4a1b2c", "environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}}
    first = build | {"command": command}
    second = build | {"command": [*command, template, "--enable-auto-tool-choice", "--max-num-seqs", "64"]}
    third = first | {"build": "vllm-0.33.1-77aa01bc"}
    kept = (
        RetainedRelease("chat", 1, 1_795_000_000, False, True, first),
        RetainedRelease("chat", 2, 1_795_100_000, False, True, second, before=1),
        RetainedRelease("chat", 3, 1_795_200_000, True, True, third, before=1, built_by="builder.rack1.example.com"),
    )
    for number in range(1, hosts + 1):
        releases.show(f"gpu{number:02d}.rack{number // 10}.example.com", {"chat": kept}, console)


def _show_bench(console: Console, hosts: int) -> None:
    for number in range(1, hosts + 1):
        host = f"gpu{number:02d}.rack{number // 10}.example.com"
        levels = (1, 8, 64, 512, 1024) if hosts == 1 else (1, 64)
        measured = result("2026-11-21T08:00:00Z", levels) | {"host": host}
        for level in measured["levels"] if hosts == 1 else ():
            level["gpus"] = [
                {
                    "gpu": card,
                    "name": "NVIDIA GeForce RTX 3090",
                    "power_most_w": 280.0 + card,
                    "memory_most_mib": 22_900.0,
                    "temperature_most_c": 61.0 + card,
                }
                for card in range(8)
            ]
        bench.show_result(measured, console)


def _fit(name: str, quant: str, engine: str, context: int, low: float, on_host: bool = False) -> Any:
    candidate = SimpleNamespace(checkpoint=SimpleNamespace(quant=quant), engine=SimpleNamespace(name=engine))
    return SimpleNamespace(
        model=SimpleNamespace(name=name, commercial=True),
        decision=SimpleNamespace(candidate=candidate),
        quality=SimpleNamespace(level="near" if on_host else "lossless"),
        spread="8 GPUs" if on_host else "TP8 EP8",
        context=context,
        speed=Speed(low=low, high=2.5 * low),
        needs_host_memory=on_host,
    )


def _show_fit(console: Console, hosts: int) -> None:
    found = [
        _fit("gpt-oss-20b", "MXFP4", "vllm", 131_072, 65),
        _fit("MiniMax-M2.5", "UD-Q4_K_XL", "llama.cpp", 40_960, 8, on_host=True),
        _fit("NVIDIA-Nemotron-3-Ultra-550B-A55B-Preview-2026", "NVFP4", "vllm", 1_048_576, 31),
    ]
    rig: Any = SimpleNamespace(text="8x NVIDIA GeForce RTX 3090, 512 GiB host memory", hosts_per_service=1)
    groups = ", ".join(f"group{number}" for number in range(1, hosts // 5 + 1))
    fit.show_rigs([(groups, rig, found)], FitFilter(0, 0.0, False), console, everything=False)


SCREENS: dict[str, Callable[[Console, int], None]] = {
    "status": _show_status,
    "releases": _show_releases,
    "bench": _show_bench,
    "fit": _show_fit,
}
FLEETS = {"rig": 1, "fleet": 50}


def _drawn(name: str, hosts: int, file: io.StringIO) -> str:
    SCREENS[name](Console(file=file, highlight=False), hosts)
    return file.getvalue()


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("name", SCREENS)
def test_screens(name: str, fleet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = []
    for width in WIDTHS:
        describe(monkeypatch, width)
        colourless = _drawn(name, FLEETS[fleet], Terminal())
        assert not re.search(r"\x1b\[[0-9;]*3[0-9]", colourless)
        lines = plain(colourless).splitlines()
        assert [line for line in lines if len(line) > width or line != line.rstrip()] == []
        describe(monkeypatch, width, colour=True)
        coloured = _drawn(name, FLEETS[fleet], Terminal())
        assert plain(coloured) == plain(colourless)
        parts.append(f"{width} columns\n\n{coloured if fleet == 'rig' else plain(colourless)}")
    whole = _drawn(name, FLEETS[fleet], io.StringIO())
    assert "\x1b" not in whole and "not shown in" not in whole and "\N{HORIZONTAL ELLIPSIS}" not in whole
    assert_golden(f"screens/{name}-{fleet}.txt", "\n\n".join([*parts, f"in a pipe\n\n{whole}"]))


@pytest.mark.parametrize("name", SCREENS)
def test_a_dumb_terminal_has_eighty_columns_and_no_colour(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, 200, kind="dumb", colour=True)
    dumb = _drawn(name, 1, Terminal())
    describe(monkeypatch, 80)
    assert "\x1b" not in dumb
    assert dumb == plain(_drawn(name, 1, Terminal()))


def test_no_cell_of_a_narrow_terminal_is_one_letter_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    describe(monkeypatch, 40)
    lines = plain(_drawn("status", 50, Terminal())).splitlines()
    assert [line[:5] for line in lines[1:51]] == [f"gpu{number:02d}" for number in range(1, 51)]
    assert lines[0].split() == ["host", "service", "health", "drift"]
