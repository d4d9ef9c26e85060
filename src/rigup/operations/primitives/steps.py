"""Wraps a Python function as a pyinfra command that keeps its error (pyinfra would only log it)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyinfra.api import FunctionCommand
from pyinfra.api.exceptions import NestedOperationError

from rigup.host import Host, state_of


@dataclass
class _LastError:
    """The error of a host's last failed step."""

    error: Exception | None = None


def step(function: Callable[..., None], *arguments: Any) -> FunctionCommand:
    """A command that calls `function(host, *arguments)`; if that raises, the operation fails; see `error_of`."""

    def run(state: Any, host: Host) -> bool:
        failure = state_of(host, _LastError)
        failure.error = None
        try:
            function(host, *arguments)
        except NestedOperationError as error:
            # this error only says that a nested operation failed; the nested step has stored the reason
            failure.error = failure.error or error
            return False
        except Exception as error:
            failure.error = error
            return False
        return True

    return FunctionCommand(run, (), {})


def error_of(host: Host) -> Exception | None:
    """The error of this host's last failed step."""
    return state_of(host, _LastError).error
