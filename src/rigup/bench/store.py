"""Stores benchmark results in the fleet folder, one file per run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.project.result_files import keep, safe
from rigup.regular_files import json_of, read_text

RESULTS = "results"
MOST_KEPT_IN_VIEW = 40


def store(root: Path, result: dict[str, Any]) -> Path:
    """Stores a result as results/<host>/<service>/<start time>.json in the fleet folder.

    Raises InputError if it cannot be written.
    """
    return keep(root / RESULTS / safe(result["host"]) / safe(result["service"]), result)


def read_result(path: str) -> dict[str, Any]:
    """Reads a stored result. Raises InputError for an invalid file."""
    try:
        result = json_of(read_text(Path(path)))
        if result["schema"] != 1 or not isinstance(result["levels"], list) or not isinstance(result["endpoint"], dict):
            raise ValueError("not of schema 1")
    except InputError as error:
        raise InputError(error.message, f"name a file that rigup bench wrote to {RESULTS}/") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a result of rigup bench", f"name a file in {RESULTS}/") from None
    return dict(result)


def kept_results(root: Path, host: str, service: str, most: int = MOST_KEPT_IN_VIEW) -> list[dict[str, Any]]:
    """The newest results of a service, newest first; ignores invalid files."""
    found = []
    for path in sorted((root / RESULTS / safe(host) / safe(service)).glob("*.json"), reverse=True)[:most]:
        with suppress(InputError):
            found.append(read_result(str(path)))
    return sorted(found, key=lambda result: str(result.get("began")), reverse=True)
