"""The names that the probe's program uses of NVML: as nvidia-ml-py has them, which is what they are held against."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pynvml
import pytest

from rigup.programs import nvml, program_file

PROGRAM = program_file("probe_gpus.py").read_text()
NAMES = sorted(set(re.findall(r"pynvml\.(\w+)", PROGRAM)) - {"py"})
NUMBERS = [name for name in NAMES if isinstance(getattr(pynvml, name), int)]
STRUCTURES = {
    nvml.PciInfo: pynvml.nvmlPciInfo_t,
    nvml.Memory: pynvml.c_nvmlMemory_t,
    nvml.Memory2: pynvml.c_nvmlMemory_v2_t,
    nvml.ProcessInfo: pynvml.c_nvmlProcessInfo_v2_t,
    nvml.c_nvmlGpuFabricInfo_v2_t: pynvml.c_nvmlGpuFabricInfo_v2_t,
}
GPU = ctypes.c_void_p(7)
OTHERS = "Name UUID PciInfo MemoryInfo CudaComputeCapability PersistenceMode EccMode MigMode CurrentClocksEventReasons"
LIMITS = ("PowerManagementLimit", "PowerManagementDefaultLimit", "PowerManagementLimitConstraints", "ComputeMode")
LINKS = ("CurrPcieLinkGeneration", "MaxPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkWidth")
CALLS: dict[str, tuple[object, ...]] = {
    "nvmlSystemGetDriverVersion": (),
    "nvmlSystemGetCudaDriverVersion": (),
    "nvmlDeviceGetCount": (),
    "nvmlDeviceGetHandleByIndex": (3,),
    "nvmlDeviceGetTemperature": (GPU, 0),
    "nvmlDeviceGetNvLinkState": (GPU, 2),
    "nvmlDeviceGetComputeRunningProcesses_v3": (GPU,),
    "nvmlDeviceGetGpuFabricInfoV": (GPU, None),
    "nvmlDeviceGetTopologyCommonAncestor": (GPU, GPU),
    "nvmlDeviceGetP2PStatus": (GPU, GPU, 2),
    **{f"nvmlDeviceGet{what}": (GPU,) for what in (*OTHERS.split(), *LIMITS, *LINKS)},
}


def test_everything_that_the_program_asks_for_is_there() -> None:
    assert len(NAMES) > 30
    assert [name for name in NAMES if not hasattr(nvml, name)] == []


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_the_librarys(name: str) -> None:
    assert getattr(nvml, name) == getattr(pynvml, name)


@pytest.mark.parametrize("ours", STRUCTURES, ids=lambda ours: ours.__name__)
def test_structures_are_laid_out_as_the_librarys(ours: type[ctypes.Structure]) -> None:
    theirs = STRUCTURES[ours]
    layout = [
        [(name, getattr(one, name).offset, getattr(one, name).size) for name, _ in one._fields_]
        for one in (ours, theirs)
    ]
    assert layout[0] == layout[1]
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)


@pytest.mark.parametrize("code", [code for code in range(1, 21) if code != 19] + [999])
def test_errors_are_said_in_the_librarys_words(code: int) -> None:
    assert str(nvml.NVMLError(code)) == str(pynvml.NVMLError(code))


def test_every_function_is_held_against_the_library() -> None:
    assert {name for name in NAMES if callable(getattr(pynvml, name)) and "Get" in name} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_functions_call_c_as_the_library_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[tuple[str, int]]] = []
    monkeypatch.setattr(nvml, "_library", Recorder(called))
    monkeypatch.setattr(pynvml, "nvmlLib", Recorder(called))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    for module in (nvml, pynvml):
        with pytest.raises((nvml.NVMLError, pynvml.NVMLError), match="GPU is lost"):
            getattr(module, name)(*CALLS[name])
    assert called[0] == called[1]


class Recorder:
    """Stands for the C library: every function notes how it is called and fails with 15."""

    def __init__(self, calls: list[list[tuple[str, int]]]) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> object:
        def function(*arguments: object) -> int:
            self.calls.append([(name, len(arguments)), *(_kind(argument) for argument in arguments)])
            return nvml.NVML_ERROR_GPU_IS_LOST

        return function


def _kind(argument: object) -> tuple[str, int]:
    """What C gets: a number with its value, or memory of a size."""
    if argument is None or isinstance(argument, ctypes.c_void_p | pynvml.c_nvmlDevice_t):
        return ("pointer", 0)
    if isinstance(argument, int):
        return ("number", argument)
    if isinstance(argument, ctypes.Array):
        return ("text", 0)
    if isinstance(argument, ctypes._SimpleCData):
        return ("number", argument.value)
    return ("memory", ctypes.sizeof(argument._obj))  # type: ignore[attr-defined]


def test_processes_are_listed_in_the_room_that_the_library_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call asks how many there are; one more may have come since."""

    class Library:
        def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: object, count: Any, into: Any) -> int:
            there = [(1234, 20 * 2**30), (1300, 2**64 - 1)]
            if into is None:
                count._obj.value = 1
                return 7
            for place, (pid, used) in enumerate(there):
                into[place].pid, into[place].usedGpuMemory = pid, used
            count._obj.value = len(there)
            return 0

    monkeypatch.setattr(nvml, "_library", Library())
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(GPU) == [(1234, 20 * 2**30), (1300, None)]
