"""The program that keeps GPUs busy without a service, with stand-ins for torch and NVML."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rigup.bench.client import BOOT, multiplication
from rigup.facts.gpu_load import HostLoad, products

# torch as far as the program uses it: two cards, the second of which may be full
TORCH = """
import time
from types import SimpleNamespace as S
float16 = "half"
class OutOfMemoryError(RuntimeError): pass
def device(kind, index): return index
def randn(*shape, device, dtype):
    if FULL and device: raise OutOfMemoryError("CUDA out of memory")
def matmul(one, other, out=None): pass
cuda = S(device_count=lambda: COUNT, synchronize=lambda device: time.sleep(0.01))
"""
NVML = """
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return "NVIDIA GeForce RTX 3090"
def nvmlDeviceGetPowerUsage(handle): return 340000
def nvmlDeviceGetMemoryInfo(handle):
    from types import SimpleNamespace
    return SimpleNamespace(used=2**30)
def nvmlDeviceGetTemperature(handle, sensor): return 92 if handle else 70
def nvmlDeviceGetMaxClockInfo(handle, kind): return 2100
def nvmlDeviceGetClockInfo(handle, kind): return 900 if handle else 1800
def nvmlDeviceGetCurrentClocksEventReasons(handle): return 0x48 if handle else 0x4
"""
PLACE = "import sys; sys.path.insert(0, sys.argv[1])\n"


def multiplied(folder: Path, count: int = 2, full: bool = False) -> HostLoad | str:
    (folder / "torch.py").write_text(f"COUNT, FULL = {count}, {full}\n{TORCH}")
    packed, request = multiplication(1).splitlines()
    import base64
    import zlib

    modules: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed))) | {"pynvml": NVML}
    packed = base64.b64encode(zlib.compress(json.dumps(modules).encode())).decode()
    done = subprocess.run(
        [sys.executable, "-I", "-c", PLACE + BOOT, str(folder)],
        input=f"{packed}\n{request}\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return products(done.stdout, "products")


def test_each_card_is_watched_while_all_multiply(tmp_path: Path) -> None:
    load = multiplied(tmp_path)
    assert isinstance(load, HostLoad)
    assert load.seconds >= 1
    first, second = load.gpus
    assert (first.clock_mhz, first.highest_clock_mhz, first.held_back) == (1800, 2100, {"power cap": 1})
    assert (second.temperature_most_c, second.power_w) == (92, 340)
    assert second.held_back == {"hardware slowdown": 1, "hardware thermal": 1}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"full": True}, "OutOfMemoryError: CUDA out of memory"),
        ({"count": 0}, "RuntimeError: torch shows no GPU"),
    ],
)
def test_what_fails_on_one_card_ends_it_with_the_reason(tmp_path: Path, settings: dict[str, Any], error: str) -> None:
    assert multiplied(tmp_path, **settings) == error
