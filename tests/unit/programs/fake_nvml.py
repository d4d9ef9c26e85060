"""Stands for a host with GPUs: runs probe_gpus.py with nvidia-ml-py's functions answering from a description.

argv[1] is JSON: `gpus`, a list of {function without "nvmlDevice": answer}, where an answer {"code": N} is an error and
"hang" never comes; `init`, the code that nvmlInit fails with, or "hang"; `step_seconds`, the program's limit.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import pynvml

from rigup.programs import probe_gpus

description = json.loads(sys.argv[1])
gpus = description["gpus"]


def answer(value: Any) -> Any:
    if value == "hang":
        time.sleep(3600)
    if isinstance(value, dict) and "code" in value:
        raise pynvml.NVMLError(value["code"])
    return SimpleNamespace(**value) if isinstance(value, dict) else value


def processes(index: int) -> Any:
    """In the form of nvidia-ml-py: objects with fields."""
    found = answer(gpus[index].get("GetComputeRunningProcesses_v3", {"code": pynvml.NVML_ERROR_NOT_SUPPORTED}))
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in found]


def device(name: str) -> Any:
    missing = {"code": pynvml.NVML_ERROR_NOT_SUPPORTED}
    return lambda index, *rest: answer(gpus[index].get(name, missing))


def between(name: str) -> Any:
    """A function of two GPUs; the first one's description has the answer, for every capability or by its number."""

    def asked(first: int, second: int, *capability: int) -> Any:
        value = gpus[first].get(name, {"code": pynvml.NVML_ERROR_NOT_SUPPORTED})
        return value[str(capability[0])] if capability else answer(value)

    return asked


for function in [name for name in dir(pynvml) if name.startswith("nvmlDeviceGet")]:
    setattr(pynvml, function, device(function.removeprefix("nvmlDevice")))
for function in ("GetTopologyCommonAncestor", "GetP2PStatus"):
    setattr(pynvml, f"nvmlDevice{function}", between(function))


def fabric(index: int, into: Any) -> None:
    """Fills the structure that `into`, made by byref, points at."""
    said = answer(gpus[index].get("GetGpuFabricInfoV", {"code": pynvml.NVML_ERROR_NOT_SUPPORTED}))
    for name, value in vars(said).items():
        setattr(into._obj, name, value)


pynvml.nvmlDeviceGetGpuFabricInfoV = fabric
pynvml.nvmlDeviceGetComputeRunningProcesses_v3 = processes
pynvml.nvmlInit = lambda: answer(description.get("init"))
pynvml.nvmlDeviceGetCount = lambda: len(gpus)
pynvml.nvmlDeviceGetHandleByIndex = lambda index: answer(gpus[index].get("handle")) or index
pynvml.nvmlSystemGetDriverVersion = lambda: "580.95.05"
pynvml.nvmlSystemGetCudaDriverVersion = lambda: 13010
probe_gpus.START_SECONDS = probe_gpus.STEP_SECONDS = description.get("step_seconds", 30)
sys.exit(probe_gpus.main())
