"""Sizes and small value types. Memory is MiB (2**20 bytes), files are bytes, and nothing is called "GB" in code."""

import time
from collections.abc import Sequence
from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MIB = 2**20
GIB = 2**30

Port = Annotated[int, Field(ge=1, le=65535)]


class Frozen(BaseModel):
    """The base of every noun: immutable, and an unknown key is an error rather than a silent typo."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def bytes_text(count: float) -> str:
    """A size for people, in the decimal units that disks and hubs use: 98000000 -> '98.0 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


def seconds_text(seconds: float) -> str:
    """A duration for people: 0.42 s, 12.3 s, 7 min 05 s, 2 h 03 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def list_text(words: Sequence[str], most: int) -> str:
    """The first words of a list, and how many more there are: "a, b and 3 more"."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def uptime_text(seconds: int | None) -> str:
    """A duration in its two largest units: 3d 4h; "" for None."""
    if seconds is None:
        return ""
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit} {seconds % size // small}{smaller}"
    return f"{seconds}s"


def time_text(timestamp: float) -> str:
    """A moment for people, from seconds since 1970: 2026-11-21 20:15:00 UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(timestamp))


def with_port(address: str, port: int) -> str:
    """ADDRESS:PORT, with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


Capability = Annotated[str, Field(pattern=r"^\d+\.\d+$")]
"""A compute capability of CUDA, "8.6"."""


@cache
def compute_capability(text: str) -> tuple[int, int]:
    """'8.6' -> (8, 6), for comparing; raises ValueError on anything else."""
    major, dot, minor = text.partition(".")
    if not dot:
        raise ValueError(f'compute capability must look like "8.6", not "{text}"')
    return int(major), int(minor)
