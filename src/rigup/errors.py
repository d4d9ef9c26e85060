"""Every error that rigup shows to a user: one message, one hint, one exit code.

RigupError              something is wrong; `message` says what, `hint` says what to do
├── InputError          (2) what the user wrote cannot be used; the message starts with the path to the value
├── Unreachable         (2) a server could not be reached: a hub, an index, a service
│   └── HostUnreachable (2) a host of the fleet could not be reached
├── MissingTool         (2) the controlling machine lacks something
├── Refused             (1) the request is valid but denied: a plan that does not fit, a host in use by another apply
└── HostFailed          (1) a step on a host failed
    └── HostLost        (1) a host has stopped responding in the middle of a step
"""

from __future__ import annotations

from typing import Any, ClassVar


class RigupError(Exception):
    """The root: carries the message and the hint that the CLI prints, and the exit code it ends with."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {"message": self.message, "hint": self.hint}


class InputError(RigupError):
    """Raised when an inventory, group_data file, lock, flag or catalogue file cannot be used as written."""

    exit_code = 2


class Unreachable(RigupError):
    """Raised when a server cannot be reached: it does not resolve, refuses connections, or answers with an error."""

    exit_code = 2


class HostUnreachable(Unreachable):
    """Raised when a host of the fleet cannot be reached: it does not resolve, refuses SSH, rejects the key or sudo."""


class MissingTool(RigupError):
    """Raised when the controlling machine lacks a program or a right that a verb needs."""

    exit_code = 2


class Refused(RigupError):
    """Raised when a valid request is denied."""


class HostFailed(RigupError):
    """Raised when a step on a host failed; the message names the host and the step."""


class HostLost(HostFailed):
    """Raised when a host no longer responds: what the step did there is unknown, and nothing can be put back now."""
