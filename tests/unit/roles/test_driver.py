"""What starts again with a driver: what runs it, not what the next kernel needs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import roles.driver
from rigup.facts.probe import Probe
from rigup.planner.driver_packages import driver_packages
from tests.unit.operations.driver.test_state import GOOD, KERNEL, PLAN, THERE, having

OTHER = {**THERE, "nvidia-open": "590.48.01-1"}


@pytest.mark.parametrize(
    ("probe", "module", "nvswitches", "restarts"),
    [
        (GOOD, "580.178.04", 0, False),
        (replace(GOOD, headers=()), "580.178.04", 0, False),
        (GOOD, "", 0, False),
        (having(packages=OTHER), "580.178.04", 0, True),
        (having(loaded="590.48.01"), "580.178.04", 0, True),
        (having(packages=THERE), "580.178.04", 4, True),
    ],
    ids=[
        "as planned",
        "headers",
        "a module",
        "packages",
        "the driver runs",
        "the fabric's manager",
    ],
)
def test_headers_for_the_next_kernel_restart_nothing(
    monkeypatch: pytest.MonkeyPatch, probe: Probe, module: str, nvswitches: int, restarts: bool
) -> None:
    restarted: list[bool] = []

    def changing(**words: Any) -> SimpleNamespace:
        return SimpleNamespace(will_change=bool(words.get("problem")))

    def running(**words: Any) -> SimpleNamespace:
        restarted.append(words["restart"])
        return SimpleNamespace(will_change=words["restart"])

    packages = driver_packages(PLAN, "debian-12", "x86_64", KERNEL, nvswitches=nvswitches)
    for name, stand_in in (
        ("text_files", changing),
        ("driver_packages", changing),
        ("loaded_driver", changing),
        ("running_units", running),
        ("fabric", lambda probe, restarted: None),
        ("host", SimpleNamespace(get_fact=lambda *words, **more: module)),
    ):
        monkeypatch.setattr(roles.driver, name, stand_in)
    repository: Any = None
    found = roles.driver.driver.__wrapped__(PLAN, packages, repository, probe, lambda probe: None)
    assert (restarted, found) == ([restarts], restarts)
