"""Prints how each GPU of this machine is connected, one JSON object per line; measures unless told "--read-only".

    {"gpu": 0, "bus": ..., "generation": ..., ...}      each GPU; null for a value that it does not have
    {"lost": 2, "error": ...}                           each GPU that NVML has and that does not respond
    {"pair": [0, 1], "read": ..., "gbs": ..., ...}      each ordered pair of GPUs
    {"xid": 79, "bus": ..., "text": ...}                each error of the driver in the kernel's log since boot
    {"done": true}                                      the last line

A measurement allocates memory on a GPU only where enough is free, and changes no setting.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pynvml

TYPE_CHECKING = False  # see probe_gpus.py
if TYPE_CHECKING:
    from typing import Any

    from rigup.programs.links import link_copies, link_counters, pci_links
else:  # on a host, the programs import one another by name
    import link_copies
    import link_counters
    import pci_links

LOG_SECONDS = 20
MOST_XIDS = 100
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{1,20})\): ([0-9]{1,4}),? ?(.{0,200})")


def main(arguments: list[str]) -> int:
    """Prints everything; returns 0."""
    for found in xids():
        _show(found)
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        _show({"error": str(error)})
        return 0
    cards = _responding(count)
    if len(cards) < count:  # CUDA may not start with a lost card in sight
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(card.uuid for card in cards.values())
    else:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    copies, why = (None, "not asked for") if "--read-only" in arguments else _copies()
    for index, card in list(cards.items()):
        line = {"gpu": index, "bus": card.bus, **link_counters.of_gpu(card.handle), **pci_links.describe(card.bus)}
        look = (lambda handle: lambda: link_counters.now(handle))(card.handle)
        try:
            _show({**line, **_measured(copies, why, [card.handle], card.bus, look)})
        except pynvml.NVMLError as error:  # lost meanwhile
            del cards[index]
            _show({"lost": index, "bus": card.bus, "error": str(error)})
    for first, one in cards.items():
        for second, other in cards.items():
            if first != second:
                line = {"pair": [first, second], **link_counters.of_pair(one.handle, other.handle)}
                _show({**line, **_pair(copies, why, one, other)})
    _show({"done": True})
    return 0


def _responding(count: int) -> dict[int, _Card]:
    """The GPUs that respond, by index; prints those that do not."""
    found: dict[int, _Card] = {}
    for index in range(count):
        bus = ""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            bus = _bus(handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            found[index] = _Card(handle, bus, pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError as error:
            _show({"lost": index, "bus": bus, "error": str(error)})
    return found


class _Card:
    """A GPU that responds."""

    def __init__(self, handle: Any, bus: str, uuid: str) -> None:
        self.handle, self.bus, self.uuid = handle, bus, uuid


def _pair(copies: Any, why: str, one: _Card, other: _Card) -> dict[str, Any]:
    try:
        return _measured(copies, why, [one.handle, other.handle], one.bus, other.bus)
    except pynvml.NVMLError as error:
        return {"unmeasured": str(error)}


def xids() -> list[dict[str, Any]]:
    """The driver's errors in the kernel's log since boot, the newest last."""
    command = ["journalctl", "-k", "-b", "--no-pager", "-o", "cat", "--grep", "NVRM: Xid"]
    try:
        log = subprocess.run(command, capture_output=True, timeout=LOG_SECONDS, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = log.decode(errors="replace").splitlines()
    matches = [found for found in map(_XID.search, lines) if found]
    return [{"xid": int(found[2]), "bus": found[1].lower(), "text": found[3].strip()} for found in matches[-MOST_XIDS:]]


def _copies() -> tuple[link_copies.Copies | None, str]:
    try:
        return link_copies.Copies(), ""
    except link_copies.CudaError as error:
        return None, str(error)


def _measured(copies: Any, why: str, handles: list[Any], *arguments: Any) -> dict[str, Any]:
    """The result of a measurement on these GPUs, or why there is none."""
    if copies is None:
        return {"unmeasured": why}
    for handle in handles:
        free = pynvml.nvmlDeviceGetMemoryInfo(handle).free
        if free < link_copies.FREE and handle.value not in _opened:
            return {"unmeasured": f"only {free // 2**20} MiB are free"}
    try:
        found = copies.between(*arguments) if len(handles) > 1 else copies.from_host(*arguments)
    except link_copies.CudaError as error:
        return {"unmeasured": str(error)}
    _opened.update(handle.value for handle in handles)
    return dict(found)


_opened: set[Any] = set()


def _bus(handle: Any) -> str:
    """A PCI address as the kernel writes it."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", pynvml.nvmlDeviceGetPciInfo(handle).busId.decode().lower())


def _show(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
