"""Faults of the hub stand-in, read from a file at every request, and their pace at every block: they can change."""

import threading
from collections import Counter
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rigup.units import Frozen

Times = Annotated[int, Field(ge=0)]


class Faults(Frozen):
    """The switches. By default there are no faults; counts "per file" restart when the switches change.

    drop_after_bytes: closes the connection after this many bytes of a body, `drop_times` times per file.
    corrupt_times: how often to flip a bit in the middle of a body, per file.
    bytes_per_second: for each connection. fail_first: how many requests to answer with `fail_status` and, if set, with
    `retry_after_s`.
    token: the required token. gated: refuse even the right token (403). latency_s: delay before each answer.
    ignore_range: send whole files in answer to range requests.
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
    """The switches of a running hub, from a file that may be replaced or absent, and how often each was used."""

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
        """True for the first `times` calls with the same name."""
        with self._lock:
            self._used[what] += 1
            return self._used[what] <= times


def write_faults(path: Path, faults: Faults) -> None:
    """Sets the switches atomically; only the owner can read them, because they may contain a token."""
    temporary = path.with_name(path.name + ".new")
    temporary.touch(mode=0o600)
    temporary.write_text(faults.model_dump_json())
    temporary.replace(path)
