"""Uses CUDA on a lab machine as programs do, and prints JSON: `python3 use_cuda.py`. Standard library alone."""

from __future__ import annotations

import ctypes
import json

cuda = ctypes.CDLL("libcuda.so.1")


def number(function: str, *arguments: object) -> int:
    """What a function writes to its first argument."""
    into = ctypes.c_size_t(0)
    error = getattr(cuda, function)(ctypes.byref(into), *arguments)
    return -error if error else into.value


def main() -> None:
    """Counts cards, fills the first, and reads back what it wrote."""
    found: dict[str, object] = {"init": cuda.cuInit(0), "cards": number("cuDeviceGetCount")}
    name, bus = ctypes.create_string_buffer(100), ctypes.create_string_buffer(100)
    if found["cards"]:
        cuda.cuDeviceGetName(name, 100, 0)
        cuda.cuDeviceGetPCIBusId(bus, 100, 0)
        found["name"], found["bus"] = name.value.decode(), bus.value.decode()
        found["capability"] = [number("cuDeviceGetAttribute", which, 0) for which in (75, 76)]
        total = number("cuDeviceTotalMem_v2", 0)
        memory = number("cuMemAlloc_v2", ctypes.c_size_t(total - 2**30))
        found["error_when_full"] = -number("cuMemAlloc_v2", ctypes.c_size_t(2**31))
        left, whole = ctypes.c_size_t(), ctypes.c_size_t()
        cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(whole))
        found["left"] = left.value
        back = ctypes.create_string_buffer(5)
        cuda.cuMemcpyHtoD_v2(ctypes.c_void_p(memory), b"bytes", ctypes.c_size_t(5))
        cuda.cuMemcpyDtoH_v2(back, ctypes.c_void_p(memory), ctypes.c_size_t(5))
        cuda.cuMemsetD8_v2(ctypes.c_void_p(memory), ctypes.c_ubyte(0), ctypes.c_size_t(total - 2**30))
        found["read"] = back.raw.decode()
        cuda.cuMemcpyDtoH_v2(back, ctypes.c_void_p(memory), ctypes.c_size_t(5))
        found["zeros"] = list(back.raw)
        found["free"] = cuda.cuMemFree_v2(ctypes.c_void_p(memory))
        found["free_again"] = cuda.cuMemFree_v2(ctypes.c_void_p(memory))
    print(json.dumps(found))


main()
