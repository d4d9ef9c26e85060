"""Wraps a Python function as a pyinfra command that keeps its error (pyinfra would only log it)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from pyinfra.api import FunctionCommand, operation
from pyinfra.api.exceptions import NestedOperationError

from rigup.host import Host, state_of


@dataclass
class _LastError:
    """The error of a host's last failed step."""

    error: Exception | None = None


class StepCommand(FunctionCommand):
    """Calls `function(host, *arguments)`; if that raises, the operation fails; see `error_of`."""

    def __init__(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        super().__init__(self._run, (), {})
        self._function, self._arguments = function, arguments

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepCommand):
            return NotImplemented
        return (self._function, self._arguments) == (other._function, other._arguments)

    def carry_out(self, host: Host) -> None:
        """Calls the function outside of any operation. Raises its error."""
        self._function(host, *self._arguments)

    def _run(self, state: Any, host: Host) -> bool:
        failure = state_of(host, _LastError)
        failure.error = None
        try:
            self.carry_out(host)
        except NestedOperationError as error:
            # this error only says that a nested operation failed; the nested step has stored the reason
            failure.error = failure.error or error
            return False
        except Exception as error:
            failure.error = error
            return False
        return True


def step(function: Callable[..., None], *arguments: Any) -> StepCommand:
    """A command that calls `function(host, *arguments)`."""
    return StepCommand(function, arguments)


@operation()
def carried_out(
    function: Callable[..., None], arguments: tuple[Any, ...] = ()
) -> Generator[FunctionCommand, None, None]:
    """Calls `function(host, *arguments)` in any case: that it is needed, the role knows.

    + function: does the work
    + arguments: after the host
    """
    yield step(function, *arguments)


def error_of(host: Host) -> Exception | None:
    """The error of this host's last failed step."""
    return state_of(host, _LastError).error
