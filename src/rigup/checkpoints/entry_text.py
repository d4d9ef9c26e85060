"""Entries of the catalogue as TOML, one key a line in the order of their fields. Equal entries are equal bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.regular_files import toml_tables


def model_text(model: Model, comment: str) -> str:
    """A file of catalogue/models/ with one model."""
    values = plain_values(model)
    return _text("model", values, comment)


def plain_values(entry: Model | CheckpointEntry) -> dict[str, Any]:
    """The fields that are not as by default, as plain values; the kind of an attention is always said."""
    values = entry.model_dump(mode="json", exclude_defaults=True)
    for key in ("attention", "mtp_attention"):
        if key in values:
            kinds = [each.kind for each in getattr(entry, key)]
            values[key] = [{"kind": kind, **each} for kind, each in zip(kinds, values[key], strict=True)]
    return values


def checkpoint_text(entry: CheckpointEntry, comment: str) -> str:
    """A file of catalogue/checkpoints/ with one checkpoint."""
    return _text("checkpoint", plain_values(entry), comment)


def _text(table: str, values: Mapping[str, Any], comment: str) -> str:
    inner = ("attention", "mtp_attention", "tensors", "layers", "sources")
    return "\n\n".join([f"# {comment}", *toml_tables(table, [values], inner)]) + "\n"
