"""Why a step failed is kept, also where the step was an operation within another one's step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyinfra.api.exceptions import NestedOperationError

from rigup.errors import HostFailed
from rigup.operations.primitives.steps import error_of, step


def carry_out(host: Any, function: Any) -> bool:
    """Runs a step as pyinfra does; returns whether it went well."""
    return bool(step(function).function(None, host) is not False)


def fails(host: Any) -> None:
    raise HostFailed("box: apt is locked")


def test_what_a_step_raises_is_kept() -> None:
    host = SimpleNamespace(connector_data={})
    assert not carry_out(host, fails)
    assert str(error_of(host)) == "box: apt is locked"


def test_a_nested_operations_own_words_are_kept() -> None:
    def outer(host: Any) -> None:
        carry_out(host, fails)
        raise NestedOperationError("0123456789abcdef")

    host = SimpleNamespace(connector_data={})
    assert not carry_out(host, outer)
    assert str(error_of(host)) == "box: apt is locked"


def test_an_error_of_before_is_not_told_again() -> None:
    def outer(host: Any) -> None:
        raise NestedOperationError("0123456789abcdef")

    host = SimpleNamespace(connector_data={})
    carry_out(host, fails)
    assert not carry_out(host, outer)
    assert isinstance(error_of(host), NestedOperationError)
