"""Prints errors: one message and one hint."""

from __future__ import annotations

import json
import sys

from rigup.errors import RigupError


def show_error(error: RigupError, as_json: bool) -> None:
    """Prints message and hint to standard error; with as_json also to standard output as JSON."""
    if as_json:
        print(json.dumps({"schema": 1, "error": {"message": error.message, "hint": error.hint}}))
    print(f"rigup: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
