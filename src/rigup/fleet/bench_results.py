"""Where results of benchmarks are kept: below the fleet's folder, a file a run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.fleet.kept_files import keep, safe

RESULTS = "results"
MOST_KEPT_IN_VIEW = 40


def store(root: Path, result: dict[str, Any]) -> Path:
    """Keeps a result: results/<host>/<service>/<when it began>.json below the fleet's folder.

    Raises InputError where it cannot be written.
    """
    return keep(root / RESULTS / safe(result["host"]) / safe(result["service"]), result)


def read_result(path: str) -> dict[str, Any]:
    """A result that was stored. Raises InputError for what is none."""
    try:
        result = json.loads(Path(path).read_text())
        if result["schema"] != 1 or not isinstance(result["levels"], list) or not isinstance(result["endpoint"], dict):
            raise ValueError("not of schema 1")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", f"rigup bench writes results below {RESULTS}/") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not a result of rigup bench", f"it writes them below {RESULTS}/") from None
    return dict(result)


def kept_results(root: Path, host: str, service: str, most: int = MOST_KEPT_IN_VIEW) -> list[dict[str, Any]]:
    """The newest results of a service, newest first; what is none is passed over."""
    found = []
    for path in sorted((root / RESULTS / safe(host) / safe(service)).glob("*.json"), reverse=True)[:most]:
        with suppress(InputError):
            found.append(read_result(str(path)))
    return sorted(found, key=lambda result: str(result.get("began")), reverse=True)
