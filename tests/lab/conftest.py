"""Labs and fleets for tests: those that a test process shares, and new ones for tests that need their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from tests.lab.fleet import Fleet
from tests.lab.fleet_fixtures import made_lab, made_site

_numbers = count(1)


@pytest.fixture(scope="session")
def lab(labs_can_run: None) -> Iterator[Lab]:
    """Two machines that the tests of one process share: a test that breaks one repairs it."""
    with made_lab(_name(), hosts=2) as made:
        yield made


@pytest.fixture
def new_lab(labs_can_run: None) -> Iterator[Callable[..., Lab]]:
    """Makes labs for one test: `new_lab(hosts=1, disk="600m")` takes what `Lab.up` takes but the name."""

    def make(**options: Any) -> Lab:
        return made.enter_context(made_lab(_name(), **options))

    with ExitStack() as made:
        yield make


@pytest.fixture
def machine(lab: Lab) -> Iterator[Machine]:
    """The first machine of the shared lab; it is on, plugged in and unlimited before and after the test."""
    first = lab.machines[0]
    yield first
    first.rate(None)
    first.heal()
    first.power_on()


@pytest.fixture(scope="session")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    """Two booted machines, a hub with a small checkpoint, a fleet folder whose lock pins it and the engine, a cache."""
    with made_site(tmp_path_factory.mktemp("site"), f"fleet{os.getpid()}", hosts=2) as made:
        yield made


@pytest.fixture
def fleet(site: tuple[Lab, StandInHub, Path, Path]) -> Iterator[Fleet]:
    """The fleet, described with its default service, every fault of an earlier test healed. Runs end with the test."""
    fleet = Fleet(*site)
    fleet.describe()
    fleet.hub.faults()
    yield fleet
    fleet.end_runs()
    fleet.hub.faults()
    fleet.host.machine.heal()


def _name() -> str:
    return f"t{os.getpid()}x{next(_numbers)}"
