"""Run on a lab machine beside the unmodified pynvml.py: prints what NVML answers as JSON, errors by their name."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml

index_of = pynvml.nvmlDeviceGetIndex
PER_GPU: dict[str, Callable[[Any], Any]] = {
    "name": pynvml.nvmlDeviceGetName,
    "uuid": pynvml.nvmlDeviceGetUUID,
    "serial": pynvml.nvmlDeviceGetSerial,
    "index": pynvml.nvmlDeviceGetIndex,
    "architecture": pynvml.nvmlDeviceGetArchitecture,
    "compute_capability": pynvml.nvmlDeviceGetCudaComputeCapability,
    "memory": lambda gpu: [getattr(pynvml.nvmlDeviceGetMemoryInfo(gpu), field) for field in ("total", "free", "used")],
    "memory_v2": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu, version=pynvml.nvmlMemory_v2).total,
    "bus": lambda gpu: pynvml.nvmlDeviceGetPciInfo(gpu).busId,
    "pcie_generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie_generation_max": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "pcie_width": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    "pcie_width_max": pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    "power_limit": pynvml.nvmlDeviceGetPowerManagementLimit,
    "power_enforced": pynvml.nvmlDeviceGetEnforcedPowerLimit,
    "power_default": pynvml.nvmlDeviceGetPowerManagementDefaultLimit,
    "power_bounds": pynvml.nvmlDeviceGetPowerManagementLimitConstraints,
    "power_usage": pynvml.nvmlDeviceGetPowerUsage,
    "persistence": pynvml.nvmlDeviceGetPersistenceMode,
    "ecc": pynvml.nvmlDeviceGetEccMode,
    "mig": pynvml.nvmlDeviceGetMigMode,
    "temperature": lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "temperature_v1": lambda gpu: pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU),
    "clocks_event_reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons,
    "utilization": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "compute_mode": pynvml.nvmlDeviceGetComputeMode,
    "numa_node_of_memory": pynvml.nvmlDeviceGetNumaNodeId,
    "memory_affinity": lambda gpu: list(pynvml.nvmlDeviceGetMemoryAffinity(gpu, 1, pynvml.NVML_AFFINITY_SCOPE_NODE)),
    "processes": pynvml.nvmlDeviceGetComputeRunningProcesses,
    "nvlinks": lambda gpu: [pynvml.nvmlDeviceGetNvLinkState(gpu, link) for link in range(nvlinks(gpu))],
    "fabric_state": lambda gpu: fabric(gpu).state,
    "by_uuid": lambda gpu: index_of(pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(gpu))),
    "by_bus": lambda gpu: index_of(pynvml.nvmlDeviceGetHandleByPciBusId(pynvml.nvmlDeviceGetPciInfo(gpu).busId)),
}


def nvlinks(gpu: Any) -> int:
    """How many links there are: the first that is an invalid argument is one too many."""
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS + 1):
        try:
            pynvml.nvmlDeviceGetNvLinkState(gpu, link)
        except pynvml.NVMLError_InvalidArgument:
            return link
    return link


def fabric(gpu: Any) -> Any:
    info = pynvml.c_nvmlGpuFabricInfo_v3_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, pynvml.byref(info))
    return info


def asked(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        return type(error).__name__


def pair(first: Any, second: Any) -> dict[str, Any]:
    topology = asked(pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
    return {"topology": topology, "p2p_read": asked(pynvml.nvmlDeviceGetP2PStatus, first, second, 0)}


def read() -> dict[str, Any]:
    handles = [asked(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(pynvml.nvmlDeviceGetCount())]
    found = [handle for handle in handles if not isinstance(handle, str)]
    return {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "nvml": pynvml.nvmlSystemGetNVMLVersion(),
        "cuda": pynvml.nvmlSystemGetCudaDriverVersion(),
        "gpus": [
            gpu if isinstance(gpu, str) else {name: asked(ask, gpu) for name, ask in PER_GPU.items()} for gpu in handles
        ],
        "first_with_others": [pair(found[0], other) for other in found[1:]],
    }


def set_power_limit(index: int, milliwatts: int) -> Any:
    return asked(pynvml.nvmlDeviceSetPowerManagementLimit, pynvml.nvmlDeviceGetHandleByIndex(index), milliwatts)


if __name__ == "__main__":
    started = asked(pynvml.nvmlInit)
    if started is not None:
        print(json.dumps(started))
    elif sys.argv[1:]:
        print(json.dumps(set_power_limit(*map(int, sys.argv[1:]))))
    else:
        print(json.dumps(read()))
        pynvml.nvmlShutdown()
