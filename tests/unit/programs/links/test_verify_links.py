"""verify_links.py, with NVML and CUDA played: one card that does not respond keeps none of the others from a check."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

Run = Callable[..., tuple[list[dict[str, Any]], str | None]]


class CudaError(Exception):
    """Stands for link_copies.CudaError."""


class Copies:
    """Stands for copies over CUDA."""

    def from_host(self, *_: Any) -> dict[str, Any]:
        return {"host_gbs": 20.0}

    def between(self, *_: Any) -> dict[str, Any]:
        return {"gbs": 10.0, "correct": True}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the program on four cards. Returns its lines, and the cards that CUDA was shown."""
    played = {
        "link_copies": SimpleNamespace(Copies=Copies, CudaError=CudaError, FREE=2**20),
        "link_counters": SimpleNamespace(of_gpu=lambda _: {}, of_pair=lambda *_: {}, now=lambda _: {}),
        "pci_links": SimpleNamespace(describe=lambda _: {}),
    }
    for name, module in played.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "rigup.programs.links.verify_links", raising=False)
    verify_links = importlib.import_module("rigup.programs.links.verify_links")
    monkeypatch.setattr(verify_links, "xids", list)

    def run(lost: int, at: str) -> tuple[list[dict[str, Any]], str | None]:
        def answer(name: str, value: Callable[[int], Any]) -> None:
            def asked(which: Any) -> Any:
                index = which if isinstance(which, int) else which.value
                if index == lost and name == at:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
                return value(index)

            monkeypatch.setattr(pynvml, f"nvmlDeviceGet{name}", asked)

        monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 4)
        answer("HandleByIndex", lambda index: SimpleNamespace(value=index))
        answer("PciInfo", lambda index: SimpleNamespace(busId=f"00000000:0{index}:00.0".encode()))
        answer("MemoryInfo", lambda _: SimpleNamespace(free=2**30))
        answer("UUID", lambda index: f"GPU-{index}")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        assert verify_links.main([]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()], os.environ.get(
            "CUDA_VISIBLE_DEVICES"
        )

    return run


@pytest.mark.parametrize(
    ("at", "bus"), [("HandleByIndex", ""), ("PciInfo", ""), ("MemoryInfo", "0000:02:00.0"), ("UUID", "0000:02:00.0")]
)
def test_the_others_are_checked_and_the_lost_one_is_named(run: Run, at: str, bus: str) -> None:
    lines, shown = run(2, at)
    (lost,) = [line for line in lines if "lost" in line]
    assert (lost["lost"], lost["bus"]) == (2, bus) and "lost" in lost["error"].lower()
    assert [line["gpu"] for line in lines if "gpu" in line] == [0, 1, 3]
    assert [line["pair"] for line in lines if "pair" in line] == [
        [first, second] for first in (0, 1, 3) for second in (0, 1, 3) if first != second
    ]
    assert shown == "GPU-0,GPU-1,GPU-3"
    assert lines[-1] == {"done": True}


def test_cuda_sees_every_card_where_all_respond(run: Run) -> None:
    lines, shown = run(9, "UUID")
    assert [line["gpu"] for line in lines if "gpu" in line] == [0, 1, 2, 3]
    assert shown is None
