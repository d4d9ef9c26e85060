"""The part of NVML that probe_gpus.py uses, with nvidia-ml-py's names, so that either can be used.

nvidia-ml-py covers all of NVML: loading it takes three times as long as NVML's answer. A test compares each name here
with the library.
"""

from __future__ import annotations

import ctypes
from ctypes import byref as byref

TYPE_CHECKING = False  # see probe_gpus.py
if TYPE_CHECKING:
    from typing import Any

NVML_SUCCESS = 0
NVML_ERROR_INSUFFICIENT_SIZE = 7
NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND = 12, 13
NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 15, 16
NVML_NVLINK_MAX_LINKS = 36
NVML_COMPUTEMODE_EXCLUSIVE_THREAD, NVML_COMPUTEMODE_PROHIBITED, NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 1, 2, 3
nvmlMemory_v2, nvmlGpuFabricInfo_v2 = 0x02000028, 0x02000024

_TEXTS = {
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    5: "Already Initialized",
    6: "Not Found",
    7: "Insufficient Size",
    8: "Insufficient External Power",
    9: "Driver Not Loaded",
    10: "Timeout",
    11: "Interrupt Request Issue",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_FUNCTION_NOT_FOUND: "Function Not Found",
    14: "Corrupted infoROM",
    NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    NVML_ERROR_RESET_REQUIRED: "GPU requires restart",
    17: "The operating system has blocked the request.",
    18: "RM has detected an NVML/RM version mismatch.",
    20: "Insufficient Memory",
    999: "Unknown Error",
}
# Functions of C that write numbers where their last arguments point, and how many.
_NUMBERS = {
    "nvmlSystemGetCudaDriverVersion": 1,
    "nvmlDeviceGetTemperature": 1,
    "nvmlDeviceGetComputeMode": 1,
    "nvmlDeviceGetCurrPcieLinkGeneration": 1,
    "nvmlDeviceGetMaxPcieLinkGeneration": 1,
    "nvmlDeviceGetCurrPcieLinkWidth": 1,
    "nvmlDeviceGetMaxPcieLinkWidth": 1,
    "nvmlDeviceGetPowerManagementLimit": 1,
    "nvmlDeviceGetPowerManagementDefaultLimit": 1,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetNvLinkState": 1,
    "nvmlDeviceGetTopologyCommonAncestor": 1,
    "nvmlDeviceGetP2PStatus": 1,
    "nvmlDeviceGetCudaComputeCapability": 2,
    "nvmlDeviceGetPowerManagementLimitConstraints": 2,
    "nvmlDeviceGetEccMode": 2,
    "nvmlDeviceGetMigMode": 2,
}
_VERSION_BYTES, _TEXT_BYTES = 80, 96
_NOT_AVAILABLE = 2**64 - 1
_library: Any = None


class NVMLError(Exception):
    """An NVML call failed; `value` is the error code."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return _TEXTS.get(self.value) or _error_text(self.value)


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")),
        ("busId", ctypes.c_char * 32),
    ]


class Memory(ctypes.Structure):
    """nvmlMemory_t: bytes."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Memory2(ctypes.Structure):
    """nvmlMemory_v2_t: bytes."""

    _fields_ = [
        ("version", ctypes.c_uint),
        *((name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")),
    ]


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t: bytes; None where NVML does not tell them."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    ]


class c_nvmlGpuFabricInfo_v2_t(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_uint8 * 16),
        *((name, ctypes.c_uint) for name in ("status", "cliqueId", "state", "healthMask")),
    ]


def __getattr__(name: str) -> Any:
    """A function of `_NUMBERS`, which returns the number, or a list of two."""
    if name not in _NUMBERS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    count = _NUMBERS[name]

    def ask(*arguments: Any) -> int | list[int]:
        numbers = _numbers(name, count, *arguments)
        return numbers if count > 1 else numbers[0]

    return ask


def nvmlInit() -> None:
    """Loads the library and initialises it."""
    global _library
    try:
        _library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND) from None
    _call("nvmlInitWithFlags", 0)


def nvmlSystemGetDriverVersion() -> str:
    return _text("nvmlSystemGetDriverVersion", _VERSION_BYTES)


def nvmlDeviceGetCount() -> int:
    return _numbers("nvmlDeviceGetCount_v2", 1)[0]


def nvmlDeviceGetHandleByIndex(index: int) -> Any:
    handle = ctypes.c_void_p()
    _call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
    return handle


def nvmlDeviceGetName(handle: Any) -> str:
    return _text("nvmlDeviceGetName", _TEXT_BYTES, handle)


def nvmlDeviceGetUUID(handle: Any) -> str:
    return _text("nvmlDeviceGetUUID", _TEXT_BYTES, handle)


def nvmlDeviceGetPciInfo(handle: Any) -> PciInfo:
    found = PciInfo()
    _call("nvmlDeviceGetPciInfo_v3", handle, byref(found))
    return found


def nvmlDeviceGetMemoryInfo(handle: Any, version: int | None = None) -> Memory | Memory2:
    found = Memory2(version=version) if version else Memory()
    _call("nvmlDeviceGetMemoryInfo_v2" if version else "nvmlDeviceGetMemoryInfo", handle, byref(found))
    return found


def nvmlDeviceGetComputeRunningProcesses_v3(handle: Any) -> list[tuple[int, int | None]]:
    """The processes that hold a GPU: process id, and bytes or None."""
    count = ctypes.c_uint(0)
    try:
        _call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), None)
        return []
    except NVMLError as error:
        if error.value != NVML_ERROR_INSUFFICIENT_SIZE:
            raise
    count.value = count.value * 2 + 5
    found = (ProcessInfo * count.value)()
    _call("nvmlDeviceGetComputeRunningProcesses_v3", handle, byref(count), found)
    return [
        (one.pid, None if one.usedGpuMemory == _NOT_AVAILABLE else one.usedGpuMemory) for one in found[: count.value]
    ]


def nvmlDeviceGetCurrentClocksEventReasons(handle: Any) -> int:
    found = ctypes.c_ulonglong()
    _call("nvmlDeviceGetCurrentClocksEventReasons", handle, byref(found))
    return found.value


def nvmlDeviceGetGpuFabricInfoV(handle: Any, into: Any) -> None:
    _call("nvmlDeviceGetGpuFabricInfoV", handle, into)


def _call(name: str, *arguments: Any) -> None:
    try:
        function = getattr(_library, name)
    except AttributeError:
        raise NVMLError(NVML_ERROR_FUNCTION_NOT_FOUND) from None
    if code := function(*arguments):
        raise NVMLError(code)


def _numbers(name: str, count: int, *arguments: Any) -> list[int]:
    found = [ctypes.c_uint() for _ in range(count)]
    _call(name, *arguments, *(byref(one) for one in found))
    return [one.value for one in found]


def _text(name: str, size: int, *arguments: Any) -> str:
    found = ctypes.create_string_buffer(size)
    _call(name, *arguments, found, size)
    return found.value.decode(errors="replace")


def _error_text(code: int) -> str:
    try:
        function = _library.nvmlErrorString
        function.restype = ctypes.c_char_p
        return str(function(code).decode())
    except AttributeError:
        return f"NVML Error with code {code}"
