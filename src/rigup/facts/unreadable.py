"""The error for what a host says and cannot have said. Apart from `bounds.py`, which takes long to import. Pure."""

from __future__ import annotations

HINT = "fix it on the host; rigup changes nothing there until then"


class Unreadable(ValueError):
    """Raised where what a host says is not what it must be. hint: what puts it right, if anything is known to."""

    def __init__(self, message: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.hint = hint
