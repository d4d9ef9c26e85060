"""What NVML counts of a GPU's health and links, beyond what the probe asks for. Call it once NVML is initialised."""

from __future__ import annotations

import ctypes
from ctypes import byref

TYPE_CHECKING = False  # see probe_gpus.py
if TYPE_CHECKING:
    from typing import Any

MIB = 2**20
# nvml.h: nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlGpuP2PCapsIndex_t
_UNCORRECTED, _SINCE_BOOT = 1, 0
_READ, _WRITE, _NVLINK = 0, 1, 2
_MOST_LINKS = 36


class _Memory(ctypes.Structure):
    """nvmlBAR1Memory_t."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def of_gpu(handle: Any) -> dict[str, Any]:
    """Counters of one GPU; None for one that it does not have."""
    bar, errors = _Memory(), ctypes.c_ulonglong()
    rows = [ctypes.c_uint() for _ in range(4)]  # corrected, uncorrected, pending, failed
    remapped = _asked("nvmlDeviceGetRemappedRows", handle, *(byref(row) for row in rows))
    ecc = _asked("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _SINCE_BOOT, byref(errors))
    links = [state for link in range(_MOST_LINKS) if (state := _link(handle, link)) is not None]
    return {
        "generation": _number("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "width": _number("nvmlDeviceGetCurrPcieLinkWidth", handle),
        "most_generation": _number("nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "most_width": _number("nvmlDeviceGetMaxPcieLinkWidth", handle),
        "bar1_mib": bar.total // MIB if _asked("nvmlDeviceGetBAR1MemoryInfo", handle, byref(bar)) else None,
        "ecc_uncorrected": errors.value if ecc else None,
        "remap_pending": bool(rows[2].value) if remapped else None,
        "remap_failed": bool(rows[3].value) if remapped else None,
        "nvlinks": len(links) or None,
        "nvlinks_active": sum(links) if links else None,
    }


def of_pair(first: Any, second: Any) -> dict[str, Any]:
    """Whether NVML says that the first GPU can read and write the second one's memory, and over NVLink."""
    found = {}
    for name, capability in (("read", _READ), ("write", _WRITE), ("nvlink", _NVLINK)):
        status = _number("nvmlDeviceGetP2PStatus", first, second, capability)
        found[name] = None if status is None else status == 0
    return found


def now(handle: Any) -> dict[str, Any]:
    """The link at this moment, for a look while it carries data."""
    return {
        "loaded_generation": _number("nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "loaded_width": _number("nvmlDeviceGetCurrPcieLinkWidth", handle),
    }


def _link(handle: Any, link: int) -> int | None:
    return _number("nvmlDeviceGetNvLinkState", handle, link)


def _number(name: str, *arguments: Any) -> int | None:
    found = ctypes.c_uint()
    return found.value if _asked(name, *arguments, byref(found)) else None


def _asked(name: str, *arguments: Any) -> bool:
    function = getattr(ctypes.CDLL("libnvidia-ml.so.1"), name, None)
    return function is not None and function(*arguments) == 0
