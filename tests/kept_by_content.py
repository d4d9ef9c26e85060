"""What follows from the content of a file alone: computed once, and kept in the cache by the content's hash."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rigup.cache import cache_folder

MOST = 20_000
"""Contents that are kept of a function; of more, those of the last run."""


class KeptByContent:
    """A function of bytes whose values JSON can hold. version: changes with what the function goes by beside them."""

    def __init__(self, function: Callable[[bytes], Any], version: str) -> None:
        self.function = function
        name = hashlib.sha256(f"{sys.version}\0{version}".encode()).hexdigest()[:16]
        self.file = f"{function.__name__.strip('_')}-{name}.json"
        self.values: dict[str, Any] | None = None
        self.used: dict[str, Any] = {}
        self.new = False

    def __call__(self, content: bytes) -> Any:
        if self.values is None:
            self.values = self._read()
        key = hashlib.sha256(content).hexdigest()
        if key not in self.values:
            self.values[key], self.new = self.function(content), True
        self.used[key] = self.values[key]
        return self.values[key]

    def save(self) -> None:
        """Writes what was computed, beside what other processes have written since."""
        if not self.new:
            return
        values = {**self._read(), **self.used}
        path = cache_folder() / "tests" / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(values if len(values) <= MOST else self.used))
        beside.replace(path)
        self.new = False

    def _read(self) -> dict[str, Any]:
        with suppress(FileNotFoundError, ValueError):  # not there yet, or damaged
            return dict(json.loads((cache_folder() / "tests" / self.file).read_text()))
        return {}
