"""How an error is shown: one message, one hint."""

from __future__ import annotations

import json
import sys

from rigup.errors import RigupError


def show_error(error: RigupError, as_json: bool) -> None:
    """One message and one hint on standard error; as JSON on standard output as well, for who reads that."""
    if as_json:
        print(json.dumps({"schema": 1, "error": {"message": error.message, "hint": error.hint}}))
    print(f"rigup: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
