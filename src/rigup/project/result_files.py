"""Results that a verb keeps below the fleet's folder: each in a file of its own, named by when it began."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from rigup.errors import InputError


def keep(folder: Path, result: dict[str, Any], prefix: str = "") -> Path:
    """Writes a result to FOLDER/PREFIX<when it began>.json, with a number where that is taken; returns the path.

    Raises InputError where it cannot be written.
    """
    name = f"{prefix}{datetime.fromisoformat(result['began']):%Y%m%dT%H%M%SZ}"
    path, number = folder / f"{name}.json", 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while path.exists():
            number += 1
            path = folder / f"{name}-{number}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
    except OSError as error:
        message = f"cannot save the result in {folder}: {error.strerror}"
        raise InputError(message, "check permissions and free disk space") from None
    return path


def safe(name: str) -> str:
    """A name as one part of a path."""
    return re.sub(r"[^\w.@-]+", "_", name)
