"""Stores evaluation results in the fleet folder, by checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rigup.errors import InputError
from rigup.evaluation.harness import SCHEMA
from rigup.project.result_files import keep, safe
from rigup.regular_files import json_of, read_text

FOLDER = "evaluations"
HINT = f"name a file that rigup eval wrote to {FOLDER}/"


def store(root: Path, result: dict[str, Any]) -> Path:
    """Stores a result as evaluations/<repository>/<quantisation>/<host>-<service>-<when>.json in the fleet's folder.

    For an endpoint outside the inventory: evaluations/<host>/<model>/. Raises InputError if it cannot be written.
    """
    endpoint = result["endpoint"]
    checkpoint = endpoint.get("checkpoint") or {}
    parts = (checkpoint.get("repo") or endpoint["host"], checkpoint.get("quant") or endpoint["model"])
    service = "-".join(safe(part) for part in (endpoint["host"], endpoint.get("service") or "") if part)
    return keep(root / FOLDER / safe(parts[0]) / safe(parts[1]), result, f"{service}-")


def read_result(path: str) -> dict[str, Any]:
    """Reads a stored result. Raises InputError for an invalid file."""
    try:
        result = json_of(read_text(Path(path)))
        parts = (result["tasks"], result["endpoint"], result["conditions"])
        if result["schema"] != SCHEMA or not all(isinstance(part, dict) for part in parts):
            raise ValueError("of another schema")
        for task in result["tasks"].values():
            for score in task["scores"]:
                float(score["value"]), score["metric"], score["filter"], score["stderr"], score["each"]
            task["digest"], task["version"], task["questions"]
    except InputError as error:
        raise InputError(error.message, HINT) from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise InputError(f"{path}: not a result of rigup eval", HINT) from None
    return dict(result)
