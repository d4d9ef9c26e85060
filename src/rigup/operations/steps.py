"""What an operation of ours does on a host, as a pyinfra command whose error is kept (pyinfra would only log it)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyinfra.api import FunctionCommand
from pyinfra.api.exceptions import NestedOperationError

_ERROR = "rigup_error"


def step(function: Callable[..., None], *arguments: Any) -> FunctionCommand:
    """A command that calls `function(host, *arguments)`; if it raises, the operation fails and `error_of` tells why."""

    def run(state: Any, host: Any) -> bool:
        host.connector_data.pop(_ERROR, None)
        try:
            function(host, *arguments)
        except NestedOperationError as error:
            # it only says that an operation within this one failed: a step in there has kept why
            host.connector_data.setdefault(_ERROR, error)
            return False
        except Exception as error:
            host.connector_data[_ERROR] = error
            return False
        return True

    return FunctionCommand(run, (), {})


def error_of(host: Any) -> Exception | None:
    """What the last failed step of this host raised."""
    error: Exception | None = host.connector_data.get(_ERROR)
    return error
