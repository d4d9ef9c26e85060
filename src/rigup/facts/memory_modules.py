"""Reads the memory modules of a host from the firmware's tables: channels, kind and speed. Pure.

Source: DMTF DSP0134 (SMBIOS 3.7), memory device, type 17. Only the name that the board's maker gave a slot tells the
module's channel. If the names do not tell, rigup assumes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_TYPE = 17
_KINDS = {0x18: "DDR3", 0x1A: "DDR4", 0x1E: "LPDDR4", 0x22: "DDR5", 0x23: "LPDDR5"}
_SIZE, _LOCATOR, _BANK, _KIND, _SPEED, _CONFIGURED_SPEED = 0x0C, 0x10, 0x11, 0x12, 0x15, 0x20
_UNKNOWN_SPEEDS = (0, 0xFFFF)
_MOST_BYTES = 1024
_CHANNEL = re.compile(r"^(.*?)CHANNEL[ _-]*([A-Z0-9])")
# "DIMM_A1", "P1-DIMMB2", "CPU0_DIMM_C1": a letter for the channel, a number for the slot in it.
_LETTERED = re.compile(r"^(.*?[ _-]?(?:DIMM|SLOT)?[ _-]?)([A-Z])([0-9])$")


class MemoryModule(NamedTuple):
    """One module. channel: a name that all modules of a channel share, "" if the slot's name does not tell."""

    kind: str
    megatransfers: int
    channel: str


def module_of(text: str) -> MemoryModule | None:
    """A structure of type 17 in hexadecimal; None for an empty slot. Raises ValueError for anything else."""
    data = bytes.fromhex(text)
    length = data[1] if len(data) > 1 else 0
    if len(data) > _MOST_BYTES or length <= _SPEED + 1 or len(data) < length or data[0] != _TYPE:
        raise ValueError("not a memory device")
    if int.from_bytes(data[_SIZE : _SIZE + 2], "little") == 0:
        return None
    offsets = (_CONFIGURED_SPEED, _SPEED) if length >= _CONFIGURED_SPEED + 2 else (_SPEED,)
    speeds = [int.from_bytes(data[offset : offset + 2], "little") for offset in offsets]
    speed = next((each for each in speeds if each not in _UNKNOWN_SPEEDS), 0)
    names = data[length:].split(b"\0")
    locator, bank = (_name(names, data[offset]) for offset in (_LOCATOR, _BANK))
    return MemoryModule(_KINDS.get(data[_KIND], ""), speed, _channel(locator, bank))


def _name(names: list[bytes], number: int) -> str:
    """The text of a number, which counts from 1; "" for 0 and for one that is not there."""
    return names[number - 1].decode("ascii", "replace").upper().strip() if 0 < number <= len(names) else ""


def _channel(locator: str, bank: str) -> str:
    for text in (bank, locator):
        if found := _CHANNEL.match(text):
            return f"{found[1]}{found[2]}".strip()
    found = _LETTERED.match(locator)
    return f"{found[1]}{found[2]}" if found else ""


def described(modules: Iterable[MemoryModule]) -> str:
    """The value for a rig's `host_memory` ("8x DDR5-4800"), "" if the modules do not tell."""
    there = tuple(modules)
    kinds, channels = {module.kind for module in there}, {module.channel for module in there}
    speed = min((module.megatransfers for module in there), default=0)
    if len(kinds) != 1 or "" in kinds or "" in channels or not speed:
        return ""
    return f"{len(channels)}x {kinds.pop()}-{speed}"
