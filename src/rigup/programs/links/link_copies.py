"""Copies to GPUs and between them with CUDA's driver library: how fast, and whether the data arrive.

libcuda.so.1 comes with the driver, so nothing is compiled or installed. Source of the calls: CUDA driver API, cuda.h.
"""

from __future__ import annotations

import ctypes
import os
import time
from ctypes import byref

TYPE_CHECKING = False  # see probe_gpus.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MIB = 2**20
SIZE = 64 * MIB
ROUNDS = 12
FREE = 1024 * MIB
"""What must be free on a GPU: a context takes some hundred MiB, and no engine must lose memory that it counts on."""
_ALREADY_ENABLED = 704


class CudaError(Exception):
    """A call failed."""


class Copies:
    """CUDA on this machine. Raises CudaError, with what failed, if it cannot be used."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
            self._call("cuInit", 0)
        except OSError:
            raise CudaError("libcuda.so.1 is missing") from None
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", byref(count))
        self.devices = {self._bus(index): index for index in range(count.value)}
        self._opened: dict[str, _Opened] = {}

    def from_host(self, bus: str, look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """GB/s from pinned host memory to a GPU, and what `look` returns while data flow."""
        gpu = self._open(bus)
        self._call("cuCtxSetCurrent", gpu.context)
        began = time.monotonic()
        for _ in range(ROUNDS):
            self._call("cuMemcpyHtoDAsync_v2", gpu.memory[0], gpu.pinned, ctypes.c_size_t(SIZE), None)
        seen = look()
        self._call("cuCtxSynchronize")
        return {"host_gbs": _gbs(began), **seen}

    def between(self, first: str, second: str) -> dict[str, Any]:
        """Whether the second GPU reads the first one's memory directly, GB/s, and whether data arrive unchanged."""
        one, other = self._open(first), self._open(second)
        can = ctypes.c_int()
        self._call("cuDeviceCanAccessPeer", byref(can), other.device, one.device)
        if can.value:
            self._call("cuCtxSetCurrent", other.context)
            enabled = self._library.cuCtxEnablePeerAccess(one.context, 0)
            if enabled not in (0, _ALREADY_ENABLED):
                raise CudaError(f"cuCtxEnablePeerAccess: error {enabled}")
        sent = os.urandom(MIB) * (SIZE // MIB)
        size = ctypes.c_size_t(SIZE)
        self._call("cuCtxSetCurrent", one.context)
        self._call("cuMemcpyHtoD_v2", one.memory[0], sent, size)
        self._call("cuCtxSetCurrent", other.context)
        self._call("cuMemsetD8_v2", other.memory[1], ctypes.c_ubyte(0), size)
        self._call("cuCtxSynchronize")
        copy = (other.memory[1], other.context, one.memory[0], one.context, size)
        self._call("cuMemcpyPeer", *copy)
        self._call("cuCtxSynchronize")
        arrived = ctypes.create_string_buffer(SIZE)
        self._call("cuMemcpyDtoH_v2", arrived, other.memory[1], size)
        began = time.monotonic()
        for _ in range(ROUNDS):
            self._call("cuMemcpyPeer", *copy)
        self._call("cuCtxSynchronize")
        return {"direct": bool(can.value), "gbs": _gbs(began), "correct": arrived.raw == sent}

    def _open(self, bus: str) -> _Opened:
        if bus not in self._opened:
            if bus not in self.devices:
                raise CudaError("CUDA does not show this GPU")
            self._opened[bus] = _Opened(self._call, self.devices[bus])
        return self._opened[bus]

    def _bus(self, index: int) -> str:
        device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
        self._call("cuDeviceGet", byref(device), index)
        self._call("cuDeviceGetPCIBusId", text, 32, device)
        return text.value.decode().lower()

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise CudaError(f"libcuda.so.1 has no {name}")
        if code := function(*arguments):
            raise CudaError(f"{name}: error {code}")


class _Opened:
    """A GPU with a context, two buffers, and pinned memory of the host."""

    def __init__(self, call: Callable[..., None], index: int) -> None:
        self.device, self.context, self.pinned = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        call("cuDeviceGet", byref(self.device), index)
        call("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        call("cuCtxSetCurrent", self.context)
        self.memory = (ctypes.c_uint64(), ctypes.c_uint64())
        for memory in self.memory:
            call("cuMemAlloc_v2", byref(memory), ctypes.c_size_t(SIZE))
        call("cuMemAllocHost_v2", byref(self.pinned), ctypes.c_size_t(SIZE))


def _gbs(began: float) -> float:
    return round(ROUNDS * SIZE / max(time.monotonic() - began, 1e-9) / 1e9, 2)
