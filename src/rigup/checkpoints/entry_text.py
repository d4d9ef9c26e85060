"""Entries of the catalogue as TOML, one key a line in the order of their fields. Equal entries are equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


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
    sources = values.get("sources", {})
    tables = ("sources", "tensors", "attention", "mtp_attention")
    plain = {key: value for key, value in values.items() if key not in tables}
    blocks = [f"# {comment}", "\n".join([f"[[{table}]]", *_lines(plain)])]
    for key in ("attention", "mtp_attention"):
        blocks += ["\n".join([f"[[{table}.{key}]]", *_lines(entry)]) for entry in values.get(key, ())]
    if tensors := values.get("tensors"):
        outside = {key: value for key, value in tensors.items() if key != "layers"}
        blocks.append("\n".join([f"[{table}.tensors]", *_lines(outside)]))
        for layer in tensors["layers"]:
            blocks.append("\n".join([f"[[{table}.tensors.layers]]", *_lines(layer)]))
    if sources:
        blocks.append("\n".join([f"[{table}.sources]", *_lines(sources)]))
    return "\n\n".join(blocks) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_value(value)}" for key, value in values.items() if value is not None]


def _key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    """A TOML string is a JSON string, except that TOML needs DEL escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
