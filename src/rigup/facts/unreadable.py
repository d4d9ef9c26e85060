"""The error for invalid output of a host. Separate from `bounds.py`, which takes long to import. Pure."""

from __future__ import annotations

HINT = "fix it on the host; rigup changes nothing there until then"


class Unreadable(ValueError):
    """Raised if output of a host is invalid. hint: how to fix it, as far as that is known."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint
