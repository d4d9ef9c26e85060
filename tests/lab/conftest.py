"""Labs for tests: one shared by a test process, and new ones for tests that need their own. All are torn down."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from rigup.errors import MissingTool
from rigup.lab import prerequisites
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine

_numbers = count(1)


@pytest.fixture(scope="session")
def labs_can_run() -> None:
    """Skips where this machine cannot run a lab, with what is missing; with RIGUP_REQUIRE_LAB=1 that is a failure."""
    try:
        prerequisites.check()
    except MissingTool as missing:
        reason = f"{missing.message} ({missing.hint})"
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def lab(labs_can_run: None) -> Iterator[Lab]:
    """Two machines that the tests of one process share: a test that breaks one repairs it."""
    with _torn_down() as make:
        yield make(hosts=2)


@pytest.fixture
def new_lab(labs_can_run: None) -> Iterator[Callable[..., Lab]]:
    """Makes labs for one test: `new_lab(hosts=1, disk="600m")` takes what `Lab.up` takes but the name."""
    with _torn_down() as make:
        yield make


@pytest.fixture
def machine(lab: Lab) -> Iterator[Machine]:
    """The first machine of the shared lab; it is on, plugged in and unlimited before and after the test."""
    first = lab.machines[0]
    yield first
    first.rate(None)
    first.heal()
    first.power_on()


class _torn_down:
    """Within it, labs can be made under names of their own; they are gone after it, also those that failed half-way."""

    def __enter__(self) -> Callable[..., Lab]:
        self.stack = ExitStack()
        return self._make

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def _make(self, **options: object) -> Lab:
        name = f"t{os.getpid()}x{next(_numbers)}"
        self.stack.callback(_down, name)
        return Lab.up(name, **options)  # type: ignore[arg-type]


def _down(name: str) -> None:
    for lab in Lab.all():
        if lab.record.name == name:
            lab.down()
