"""The answers of a lab machine's simulated GPUs, described from the catalogue. Pure: text in, text out.

The description is in /etc/lab-gpus/rig on the machine; nvml/libnvidia_ml.c documents its format.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import load_catalogue
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.rig import Gpu, Rig

NVML = Path(__file__).parent / "nvml"
FILE = "rig"
"""The description's name in a machine's folder."""
RIG = "etc/lab-gpus/rig"
"""The same file on the machine."""
LOAD_UNIT = "lab-nvidia-load.service"

ARCHITECTURES = {"Ampere": 7, "Ada": 8, "Hopper": 9, "Blackwell": 10}
"""NVML_DEVICE_ARCH_*, by the first word of the catalogue's architecture (nvidia-ml-py 13)."""
SWITCHES = {"Ampere": 6, "Hopper": 4}
"""NVSwitches of a baseboard with eight SXM GPUs, as far as the host sees them: not from NVLink 5 on."""


def rig_data(rig: str | Mapping[str, Any]) -> dict[str, Any]:
    """A rig in the form of group_data; a text is "4x RTX 3090", or several of these separated by commas."""
    if not isinstance(rig, str):
        return dict(rig)
    names = [name.strip() for name in rig.split(",") if name.strip()]
    return {"gpus": names[0] if len(names) == 1 else names}


def describe(rig: str | Mapping[str, Any], machine: str) -> str:
    """The description of the GPUs of one machine, for /etc/lab-gpus/rig; raises InputError for an unknown GPU.

    machine: its host name; each GPU has its own UUID, which is the same whenever the lab is created.
    """
    found = read_rig(rig_data(rig), "--rig", load_catalogue())
    lines = [f"# The GPUs of {machine}, simulated: {json.dumps(rig_data(rig))}", f"gpus {len(found.gpus)}"]
    lines += _board(found)
    for index, gpu in enumerate(found.gpus):
        lines += [f"gpu{index}.{key} {value}" for key, value in _card(found, gpu, index, machine) if value is not None]
    return "".join(f"{line}\n" for line in lines)


def _board(rig: Rig) -> Iterator[str]:
    if any(gpu.open_kernel_module == "required" for gpu in rig.gpus):
        yield "open_kernel_module required"
    if any(gpu.nvswitch for gpu in rig.gpus):
        yield "nvlink_subnet_manager 1"
    elif switches := _switches(rig):
        yield f"nvswitches {switches}"


def _switches(rig: Rig) -> int:
    sxm = all(gpu.key.endswith("sxm") or "-sxm-" in gpu.key or gpu.key == "h200" for gpu in rig.gpus)
    return SWITCHES.get(rig.gpus[0].architecture, 0) if sxm and len(rig.gpus) == 8 else 0


def _card(rig: Rig, gpu: Gpu, index: int, machine: str) -> Iterator[tuple[str, object]]:
    """The description of one GPU; unavailable values are None or omitted."""
    geforce = "GeForce" in gpu.name
    centre = not geforce and "RTX" not in gpu.name and not gpu.unified_memory
    yield "name", gpu.name
    yield "uuid", f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{machine}.lab.{index}')}"
    yield "serial", f"165000000{index:04}" if centre else None
    yield "bus", f"00000000:{_bus(index):02X}:00.0"
    yield "architecture", ARCHITECTURES.get(gpu.architecture.split("-")[0].split()[0])
    yield "compute_capability", gpu.compute_capability
    yield "compute_mode", 0
    yield "memory_mib", gpu.memory_mib
    yield "memory_used_mib", 0 if gpu.memory_mib else None
    yield from _links(rig, gpu, index, geforce)
    yield from _power(gpu)
    yield "persistence", 0
    yield "ecc", None if geforce or gpu.unified_memory else int(centre)
    yield "mig", 0 if centre and gpu.compute_capability in ("8.0", "9.0", "10.0", "10.3") else None
    yield "temperature", 30 + index % 4
    yield "clocks_event_reasons", 1
    yield "performance_state", 8
    yield "utilization", 0


def _links(rig: Rig, gpu: Gpu, index: int, geforce: bool) -> Iterator[tuple[str, object]]:
    switched = gpu.nvswitch or bool(_switches(rig))
    ampere = gpu.compute_capability.startswith("8.")
    links = 18 if switched and not ampere else 12 if switched else 4 if gpu.name.endswith("RTX 3090") else None
    if not gpu.unified_memory:
        yield "pcie_generation", 1  # idle cards use a lower generation
        yield "pcie_generation_max", 4 if ampere else 5
        yield "pcie_width", 16
        yield "pcie_width_max", 16
        yield "bar1_mib", 256 if geforce and ampere else gpu.memory_mib and 1 << (gpu.memory_mib - 1).bit_length()
    yield "numa_node", index * 2 // len(rig.gpus) if len(rig.gpus) > 4 else 0
    yield "topology", 40 if switched else 30
    yield "nvlinks", links
    yield "nvlinks_active", int(switched) if links else None
    yield "p2p", 1 if geforce else 0  # NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
    yield "p2p_nvlink", 0 if switched else 5
    yield "fabric_state", 2 if switched else None  # in progress, until the fabric manager is ready


def _power(gpu: Gpu) -> Iterator[tuple[str, object]]:
    if gpu.default_power_w is None or gpu.power_range_w is None or gpu.unified_memory:
        return
    least, most = gpu.power_range_w
    yield "power_limit_mw", gpu.default_power_w * 1000
    yield "power_default_mw", gpu.default_power_w * 1000
    yield "power_minimum_mw", least * 1000
    yield "power_maximum_mw", most * 1000
    yield "power_usage_mw", least * 100


def _bus(index: int) -> int:
    """The bus number of a GPU: 01, 21, 41, ... for the first eight, numbers in between for more."""
    return 1 + index % 8 * 0x20 + index // 8
