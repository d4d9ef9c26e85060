"""Holds what verbs print with --json against the types that `rigup schema` shows."""

from __future__ import annotations

import json

from rigup.cli.schema.documents import DOCUMENTS, adapter_of


def check(verb: str, printed: str) -> None:
    """Fails for a document with a missing, unknown or wrong key. Ignores output that is not one document."""
    try:
        json.loads(printed)
    except ValueError:
        return
    if verb in DOCUMENTS:
        adapter_of(verb).validate_json(printed, extra="forbid")
