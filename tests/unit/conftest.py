"""Whole runs without SSH: each host is a folder of this machine, its commands run in a shell here.

Greeting, lease, facts, pyinfra's operations and the runner are the real ones. The connector, the probe and the
machine's own paths are replaced.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gevent import monkey
from pyinfra.context import ctx_host

from rigup.connection import connections, handshake, lease
from rigup.project.inventory import HostEntry, Project
from rigup.run import runner
from rigup.run.runner import Run
from rigup.settings import HostSettings
from tests.unit.connection.local_connector import LocalConnector

PROBE = "probe() { echo 'os debian-12'; }\nnvidia() { :; }"


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A verb that connects, called in this process, would leave gevent's sockets to all tests after it."""
    assert not monkey.is_anything_patched(), "the test has patched this process for gevent"


@pytest.fixture
def nothing_to_collect() -> None:
    """For a test that fills the stack: a finaliser left by another test, run there, would fail this one."""
    gc.collect()


@pytest.fixture
def local_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Makes runs: `local_run({"box": role, ...})`, where a role is called with the host's folder."""
    monkeypatch.setattr(connections, "RigupSSHConnector", LocalConnector)
    monkeypatch.setattr(LocalConnector, "commands", [])
    monkeypatch.setattr(LocalConnector, "unreachable", set())
    monkeypatch.setattr(handshake, "probe_definitions", lambda: PROBE)
    monkeypatch.setattr(runner, "preflight", lambda *_: ())

    def make(roles: dict[str, Callable[[Path], None]], kind: type[Run] = Run) -> Run:
        def provision(*_: Any) -> None:
            name = ctx_host.get().name
            roles[name](tmp_path / name)

        for name in roles:
            (tmp_path / name).mkdir(exist_ok=True)
        # one machine plays every host, so each needs its own place for what there is one of on a host
        monkeypatch.setattr(handshake, "FILE", str(tmp_path / "questions"))
        monkeypatch.setattr(lease, "FOLDER", str(tmp_path / "run/lease"))
        monkeypatch.setattr(lease, "FILE", str(tmp_path / "run/lease/lease.json"))
        monkeypatch.setattr(runner, "load_provision", lambda: provision)
        project = Project(tmp_path, tmp_path, tuple(HostEntry(name, "boxes", {}) for name in roles))
        contact = connections.Connections(project.data_by_host, None)
        return kind(project, dict.fromkeys(roles, ()), dict.fromkeys(roles, HostSettings()), contact)

    return make
