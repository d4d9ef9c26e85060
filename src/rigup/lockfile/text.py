"""The lock as text: TOML, sorted, one key a line. Equal locks are equal bytes."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any

from rigup.artifacts import LockedEnvironment
from rigup.lock import Lock, LockedCheckpoint
from rigup.regular_files import toml_tables
from rigup.units import Frozen

ORDER = (
    *("inputs", "engines", "driver", "cuda_toolkit", "uv", "smg", "nccl", "moe_configs"),
    *("checkpoints", "sources", "environments", "images", "harnesses"),
)
# What becomes a table of its own; of an environment, each wheel is a line, so that a changed one is a line of a diff.
TABLES = ("packages", "files", "addresses", "read_tensors", "layers")


def lock_text(lock: Lock) -> str:
    """The whole file, without empty parts. A new kind of entry adds its field to ORDER, and its tables to TABLES."""
    blocks = [f"schema = {lock.schema_version}"]
    for field in ORDER:
        part = getattr(lock, field)
        if isinstance(part, tuple):
            blocks += toml_tables(field, [_plain(entry) for entry in sorted(part, key=attrgetter("name"))], TABLES)
        elif part:
            blocks += toml_tables(field, _plain(part) if isinstance(part, Frozen) else _sorted(part), TABLES)
    return "\n\n".join(blocks) + "\n"


def _plain(entry: Frozen) -> dict[str, Any]:
    """The fields of an entry, in the order of its class."""
    values = entry.model_dump(mode="json", exclude_none=True)
    if isinstance(entry, LockedCheckpoint):
        values["files"].sort(key=itemgetter("path"))
        if not entry.location:
            del values["location"]
        if entry.read_tensors is not None:
            shortened = entry.read_tensors.model_dump(mode="json", exclude_defaults=True)
            values["read_tensors"]["layers"] = shortened["layers"]
        return values
    if isinstance(entry, LockedEnvironment):
        for field in ("addresses", "bytes"):
            if not values[field]:
                del values[field]
    return {field: _sorted(value) if isinstance(value, dict) else value for field, value in values.items()}


def _sorted(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(values.items()))
