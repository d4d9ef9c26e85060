"""Data between GPUs of a patched driver are verified once for each state of driver and cards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.host import Host
from rigup.operations.driver import links
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step

STATE = "580.178.04 GPU-0 GPU-1"


def check(host: Host) -> None:
    """Stands for the check."""


@pytest.mark.parametrize(("before", "again"), [("", True), ("595.91.07 GPU-0 GPU-1", True), (STATE, False)])
def test_what_was_verified_is_noted_behind_the_check(monkeypatch: pytest.MonkeyPatch, before: str, again: bool) -> None:
    there = {links.VERIFIED: before} if before else {}
    host: Any = SimpleNamespace(get_fact=lambda fact, paths: there, noop=lambda why: None)
    monkeypatch.setattr(links.pyinfra, "host", host)
    found = list(links.verified_peers._inner(check=check, state=STATE))
    assert found == ([step(check), step(remote.write_file, links.VERIFIED, STATE)] if again else [])
