"""Faults of the hub stand-in, read from a file at every request, so that they can change while it runs."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rigup.units import Frozen

Times = Annotated[int, Field(ge=0)]


class Faults(Frozen):
    """The switches. The default is a hub that works; what is counted "per file" starts again when the switches change.

    drop_after_bytes: closes the connection after so many bytes of a body, `drop_times` times per file.
    corrupt_times: flips a bit in the middle of a body, so many times per file.
    bytes_per_second: for each connection. fail_first: answers so many requests with `fail_status`, and
    asks to be left alone for `retry_after_s`.
    token: what must be presented. gated: whether even the right token is refused (403). latency_s: before each answer.
    ignore_range: sends whole files to those who ask for the rest of one.
    """

    drop_after_bytes: Annotated[int, Field(ge=0)] | None = None
    drop_times: Times = 1
    corrupt_times: Times = 0
    bytes_per_second: Annotated[int, Field(gt=0)] | None = None
    fail_first: Times = 0
    fail_status: Annotated[int, Field(ge=400, le=599)] = 503
    retry_after_s: Annotated[int, Field(ge=0)] | None = None
    token: str | None = None
    gated: bool = False
    latency_s: Annotated[float, Field(ge=0)] = 0.0
    ignore_range: bool = False


class Control:
    """The switches of a running hub, from a file that may be replaced or absent, and what was used up of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._text = ""
        self._faults = Faults()
        self._used: Counter[str] = Counter()

    def faults(self) -> Faults:
        """The current switches."""
        text = self.path.read_text() if self.path.exists() else ""
        with self._lock:
            if text != self._text:
                self._faults = Faults.model_validate_json(text) if text else Faults()
                self._text = text
                self._used.clear()
            return self._faults

    def take(self, what: str, times: int) -> bool:
        """True for the first `times` callers that name the same thing."""
        with self._lock:
            self._used[what] += 1
            return self._used[what] <= times


def write_faults(path: Path, faults: Faults) -> None:
    """Sets the switches, in one step; only the owner may read them, because a token is among them."""
    temporary = path.with_name(path.name + ".new")
    temporary.touch(mode=0o600)
    temporary.write_text(faults.model_dump_json())
    temporary.replace(path)
