"""Where results of evaluations are kept: below the fleet's folder, beside each other by checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.fleet.kept_files import keep, safe
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
    service = "-".join(safe(part) for part in (endpoint["host"], endpoint.get("service") or "") if part)
    return keep(root / FOLDER / safe(parts[0]) / safe(parts[1]), result, f"{service}-")


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
