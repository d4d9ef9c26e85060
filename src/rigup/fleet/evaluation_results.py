"""Where results of evaluations are kept: below the fleet's folder, beside each other by checkpoint."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.verify.evaluation import SCHEMA

FOLDER = "evaluations"
HINT = f"rigup eval writes results below {FOLDER}/"


def store(root: Path, result: dict[str, Any]) -> Path:
    """Keeps a result: evaluations/<repository>/<quantisation>/<host>-<service>-<when>.json below the fleet's folder.

    Of an endpoint that no inventory names: evaluations/<host>/<model>/. Raises InputError where it cannot be written.
    """
    endpoint = result["endpoint"]
    checkpoint = endpoint.get("checkpoint") or {}
    parts = (checkpoint.get("repo") or endpoint["host"], checkpoint.get("quant") or endpoint["model"])
    folder = root / FOLDER / _safe(parts[0]) / _safe(parts[1])
    began = datetime.fromisoformat(result["began"])
    name = "-".join(_safe(part) for part in (endpoint["host"], endpoint.get("service") or "") if part)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path, number = folder / f"{name}-{began:%Y%m%dT%H%M%SZ}.json", 1
        while path.exists():
            number += 1
            path = folder / f"{name}-{began:%Y%m%dT%H%M%SZ}-{number}.json"
        path.write_text(json.dumps(result, indent=1) + "\n")
    except OSError as error:
        raise InputError(
            f"{folder}: {error.strerror}: the result cannot be kept", "make room, or mend the folder"
        ) from None
    return path


def read_result(path: str) -> dict[str, Any]:
    """A result that was stored. Raises InputError for what is none."""
    try:
        result = json.loads(Path(path).read_text())
        parts = (result["tasks"], result["endpoint"], result["conditions"])
        if result["schema"] != SCHEMA or not all(isinstance(part, dict) for part in parts):
            raise ValueError("of another schema")
        for task in result["tasks"].values():
            for score in task["scores"]:
                float(score["value"]), score["metric"], score["filter"], score["stderr"], score["each"]
            task["digest"], task["version"], task["questions"]
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", HINT) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path}: not a result of rigup eval", HINT) from None
    return dict(result)


def _safe(name: str) -> str:
    return re.sub(r"[^\w.@-]+", "_", name)
