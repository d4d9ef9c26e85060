"""In which order smg's files change on a host, and what is said where it cannot run."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from rigup.errors import HostFailed
from rigup.gateway.paths import PORTS_UNIT_FILE, SMG_UNIT, SMG_UNIT_FILE
from rigup.operations.gateway import prefix_routing
from rigup.operations.primitives import remote
from rigup.settings import PackageSource
from tests.gateways import SMG

UNITS = {SMG_UNIT_FILE: "[Service]\nunit\n", PORTS_UNIT_FILE: "[Service]\nports\n"}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run and written on a host whose smg answers."""
    found: list[str] = []

    def run(host: Any, *words: str, **_: Any) -> Mock:
        found.append(" ".join(words))
        return Mock(ok=True, stdout="200" if words[0] == "curl" else "")

    monkeypatch.setattr(remote, "run", run)
    monkeypatch.setattr(remote, "check_output", run)
    monkeypatch.setattr(remote, "script", lambda host, text, *words, **_: run(host, text, *words))
    monkeypatch.setattr(remote, "write_file", lambda host, path, text: run(host, "write", path))
    return found


def test_it_ends_before_its_ports_are_closed_and_its_unit_is_written_last(done: list[str]) -> None:
    host: Any = Mock()
    prefix_routing._prepare(host, UNITS)
    prefix_routing._start(host, UNITS, 8406)
    stop, *rest = done
    assert "stop" in stop and stop.endswith(SMG_UNIT)
    assert [line for line in rest if line.startswith("write")] == [f"write {PORTS_UNIT_FILE}", f"write {SMG_UNIT_FILE}"]
    assert done[-1].endswith("http://127.0.0.1:8406/health")


def test_a_host_for_which_nothing_is_locked(done: list[str]) -> None:
    host: Any = Mock()
    host.name = "gw1.lan"
    with pytest.raises(HostFailed) as caught:
        prefix_routing._install(host, SMG, "riscv64", PackageSource())
    assert (caught.value.message, caught.value.hint) == (
        "gw1.lan: rigup.lock has no smg for riscv64",
        "run rigup lock --upgrade smg",
    )
    assert done == []


def test_a_wheel_that_a_wheelhouse_lacks(done: list[str], tmp_path: Any) -> None:
    host: Any = Mock()
    with pytest.raises(HostFailed) as caught:
        prefix_routing._install(host, SMG, "x86_64", PackageSource(wheelhouse=tmp_path))
    assert caught.value.message == f"{tmp_path} lacks {SMG.wheel('x86_64')}"
