"""What the kernel shows of a PCI device's way to the host: its own limits, its IOMMU, ACS on the bridges above."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # see probe_gpus.py
if TYPE_CHECKING:
    from typing import Any

DEVICES = "/sys/bus/pci/devices"
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}  # by GT/s
# PCI Express Base Specification: extended capabilities begin at 0x100, and ACS has number 0x0D. Its control register is
# 6 bytes after its head; bit 2 redirects requests of one device to another, bit 4 those that go up and down again.
_EXTENDED, _ACS, _CONTROL, _REDIRECTS = 0x100, 0x0D, 6, 0x14


def describe(bus: str, devices: str = DEVICES) -> dict[str, Any]:
    """A device's own generation and width, the type of its IOMMU domain, and the bridges that redirect P2P through it.

    bus: as the kernel writes it. An unreadable value is None; `acs` is None if not every bridge can be read.
    """
    device = f"{devices}/{bus}"
    speed = _text(f"{device}/max_link_speed")
    width = _text(f"{device}/max_link_width")
    return {
        "card_generation": _GENERATIONS.get(speed.partition(" ")[0].removesuffix(".0")),
        "card_width": int(width) if width.isdigit() else None,
        "iommu": _text(f"{device}/iommu_group/type") or None,
        "acs": _redirecting(os.path.realpath(device)),
    }


def _redirecting(path: str) -> list[str] | None:
    found = []
    while "/" in path:
        path = path.rpartition("/")[0]
        if not os.path.exists(f"{path}/config"):
            break
        try:
            with open(f"{path}/config", "rb") as file:
                config = file.read(4096)
        except OSError:
            return None
        if len(config) <= _EXTENDED:  # only root may read more
            return None
        if _acs_control(config) & _REDIRECTS:
            found.append(path.rpartition("/")[2])
    return found


def _acs_control(config: bytes) -> int:
    """The ACS control register in a device's configuration; 0 without one."""
    place = _EXTENDED
    for _ in range(64):
        head = int.from_bytes(config[place : place + 4], "little")
        if head & 0xFFFF == _ACS:
            return int.from_bytes(config[place + _CONTROL : place + _CONTROL + 2], "little")
        place = head >> 20
        if place < _EXTENDED:
            break
    return 0


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(100).strip()
    except OSError:
        return ""
