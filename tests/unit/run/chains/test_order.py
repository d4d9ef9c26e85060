"""The table of steps: whole, in the order in which roles/site.py calls the roles, and as the documentation shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from rigup.run.chains.order import STEPS, all_needs, may_begin, step_of

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "how-a-run-works.md"


def test_every_role_is_in_exactly_one_step() -> None:
    found = [
        name for file in (ROOT / "roles").glob("*.py") for name in re.findall(r'@deploy\("(.+)"\)', file.read_text())
    ]
    listed = [role for step in STEPS for role in step.roles]
    assert sorted(listed) == sorted({*found, "before", "after"})  # those two are the fleet's own


def test_every_need_is_a_step_before() -> None:
    names = [step.name for step in STEPS]
    assert len(set(names)) == len(names)
    for position, step in enumerate(STEPS):
        assert set(step.needs) <= set(names[:position]), step.name


def test_needs_are_followed_to_their_end() -> None:
    assert all_needs(step_of("engine | build x")) == ("own roles", "base", "driver", "toolkit")
    assert not may_begin(step_of("engine | build x"), {"base"})
    assert may_begin(step_of("weights | x"), {"driver", "build"})
    assert {"driver", "build", "environment", "image"} <= set(all_needs(step_of("service | x")))


def test_the_outermost_role_counts() -> None:
    assert step_of("environment | engine | build vllm-0.33.0").name == "environment"
    assert step_of("driver | fabric | fabric ready").name == "driver"


def test_an_unknown_role_waits_for_everything_beside() -> None:
    assert not may_begin(step_of("mine | a step"), {"weights"})
    assert (step_of("mine | a step").name, step_of("a step").name) == ("mine", "a step")


def test_the_documentation_shows_the_table() -> None:
    rows = [
        f"| {step.name} | {', '.join(step.needs) or 'nothing'} | {'beside the others' if step.beside else 'in turn'} |"
        for step in STEPS
    ]
    text = PAGE.read_text()
    assert [row for row in rows if row not in text] == []


def test_it_loads_nothing_that_acts() -> None:
    program = "import sys, rigup.run.chains.order; print(*({'gevent', 'pyinfra', 'paramiko', 'rich'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
