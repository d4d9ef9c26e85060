"""Finds the secrets in an inventory, and in files that it names, so that a report can be redacted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.regular_files import user_path
from rigup.report.redaction import secret_texts

LARGEST_FILE = 4096


def inventory_secrets(root: Path, data: Any) -> Iterator[str]:
    """Each value whose key names a secret, and the content of each file that a key ending in _file names.

    root: file names are relative to it. data: of a host.
    """
    for key, value in data.items() if isinstance(data, dict) else ():
        if isinstance(value, dict):
            yield from inventory_secrets(root, value)
        elif isinstance(value, str) and str(key).endswith("_file"):
            with suppress(OSError, InputError):
                path = root / user_path(value, str(key))
                if path.is_file() and path.stat().st_size <= LARGEST_FILE:
                    yield path.read_text(errors="replace").strip()
        else:
            yield from secret_texts(str(key), value)
