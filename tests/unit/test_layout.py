"""No service can have a unit that rigup makes for itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rigup
from rigup import layout
from rigup.systemd import power_limit

SOURCES = [path for path in Path(rigup.__file__).parent.rglob("*.py") if "lab" not in path.parts]


def test_every_unit_that_the_product_names_is_refused_as_a_service_or_cannot_be_one() -> None:
    named = {name for path in SOURCES for name in re.findall(r"--unit=rigup-([a-z_-]+)", path.read_text())}
    named |= {
        name for path in SOURCES for name in re.findall(r'"rigup-([a-z_-]+)\.(?:service|timer)"', path.read_text())
    }
    assert {"apt", "power-limit"} <= named
    assert {name for name in named if "_" not in name and not layout.is_own(name)} == set()
    assert layout.unit_name("power-limit") == power_limit.UNIT


@pytest.mark.parametrize("name", ["llama.cpp-b1-abc", "vllm-0.20.2+cu129-abc", "org-A_model-0123"])
def test_a_job_is_named_by_what_it_makes_and_by_no_service(name: str) -> None:
    unit = layout.job_unit("build", name)
    assert re.fullmatch(r"rigup-build-[A-Za-z0-9-]+", unit)
    assert layout.is_own(unit.removeprefix("rigup-").lower())


@pytest.mark.parametrize("name", ["chat", "weights", "apt-cache", "rebuild-1", "builder"])
def test_other_names_are_free(name: str) -> None:
    assert not layout.is_own(name)
