"""`rigup lock --upgrade eval`: the harness of this machine in a fleet's lock, and there to stay."""

from __future__ import annotations

import pytest

from rigup.artifacts import LockedHarness, LockedUv
from rigup.lock import Lock
from rigup.lockfile.entries import changes
from rigup.lockfile.resolver import Resolver
from tests.unit.lockfile.test_lock import Fleet, fleet, quad
from tests.unit.sources.local_uv import UV

__all__ = ["fleet", "quad"]  # fixtures


def harness(version: str, python: str = "3.11") -> LockedHarness:
    return LockedHarness(version=version, python=python, files={f"lm_eval-{version}-py3-none-any.whl": "a" * 64})


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index has two releases of the harness and one of uv."""

    def resolved(self: Resolver, uv: LockedUv, version: str | None = None) -> LockedHarness:
        return harness(version or "0.4.13")

    monkeypatch.setattr(Resolver, "harness", resolved)
    monkeypatch.setattr(Resolver, "uv", lambda self, *version: UV)


def test_it_is_pinned_where_it_is_asked_for_and_stays(quad: Fleet) -> None:
    before = quad.lock()
    assert before.harnesses == ()
    after = quad.lock(upgrade="eval")
    assert (after.harnesses, after.uv) == ((harness("0.4.13"),), UV)
    assert [(change.name, change.after) for change in changes(before, after)] == [
        ("eval Python 3.11 x86_64", "lm_eval 0.4.13, 1 packages"),
        ("uv", UV.version),
    ]
    assert quad.lock().harnesses == after.harnesses
    # pruning takes away what no plan uses; no plan uses a harness, or the uv that makes its environment
    pruned = quad.lock(prune=True)
    assert (pruned.harnesses, pruned.uv) == (after.harnesses, UV)
    assert quad.stale() == ()


def test_another_version_takes_its_place_and_another_machines_stays(quad: Fleet) -> None:
    quad.lock(upgrade="eval")
    lock = quad.lock(upgrade="eval=0.4.9")
    assert lock.harnesses == (harness("0.4.9"),)
    assert Lock(harnesses=(harness("0.4.9"), harness("0.4.13", "3.12"))).harness("3.12", "x86_64") is not None
