"""Reads `speculative` of a service: "mtp", or a table that says more."""

from __future__ import annotations

from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.planner.inputs.validation import check_keys, validated
from rigup.service import Speculative

EXAMPLE = 'write "mtp", or a table like {"kind": "draft", "model": "Qwen/Qwen3-0.6B", "tokens": 3}'


def read_speculative(value: object, where: str) -> Speculative | None:
    """What drafts tokens; None for None and False. Raises InputError, whose message begins with the path."""
    if value is None or value is False:
        return None
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be text or a table, not {quoted(value)}", EXAMPLE)
    check_keys(value, Speculative, where)
    if "kind" not in value:
        raise InputError(f"{where}.kind: missing", EXAMPLE)
    found = validated(Speculative, value, where)
    if found.kind == "mtp" and (named := next((key for key in ("model", "quant") if getattr(found, key)), None)):
        raise InputError(f"{where}.{named}: MTP layers are in the checkpoint itself", "leave it out")
    if found.kind != "mtp" and not found.model:
        raise InputError(f"{where}.model: missing", EXAMPLE)
    return found
