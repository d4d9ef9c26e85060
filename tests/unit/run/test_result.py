"""Exit codes come from what was seen on each host."""

from __future__ import annotations

import pytest

from rigup.errors import HostFailed, InputError, Unreachable
from rigup.run.result import Change, HostResult, exit_code

CASES = [
    (["unchanged", "changed"], 0),
    (["unchanged", "failed"], 1),
    (["differs"], 1),
    (["unreachable"], 2),
    (["unreachable", "refused"], 2),
    (["unreachable", "changed"], 1),
    (["cancelled", "changed"], 130),
]
ERRORS = {"failed": HostFailed("x"), "unreachable": Unreachable("x"), "refused": InputError("x")}


@pytest.mark.parametrize(("states", "code"), CASES)
def test_exit_code(states: list[str], code: int) -> None:
    results = [
        HostResult(str(i), state, errors=[ERRORS[state]] if state in ERRORS else []) for i, state in enumerate(states)
    ]
    assert exit_code(results) == code


def test_a_change_knows_its_role() -> None:
    assert Change.of("engine | build x") == Change("engine", "build x")
    assert Change.of("site | base | folder /opt") == Change("base", "folder /opt")
