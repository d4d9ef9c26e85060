"""Whole runs without SSH: each host is a folder of this machine, its commands run in a shell here.

Greeting, lease, facts, pyinfra's operations and the runner are the real ones. The connector, the probe and the
machine's own paths are replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup.fleet import contact, greeting, lease, runner
from rigup.fleet.inventory import HostEntry, Project
from rigup.fleet.runner import Run
from rigup.fleet.settings import Settings
from tests.unit.fleet.local_connector import LocalConnector

PROBE = "probe() { echo 'os debian-12'; }\nnvidia() { :; }"


@pytest.fixture
def local_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Makes runs: `local_run({"box": role, ...})`, where a role is called with the host's folder."""
    monkeypatch.setattr(contact, "CarefulSSH", LocalConnector)
    monkeypatch.setattr(LocalConnector, "commands", [])
    monkeypatch.setattr(LocalConnector, "unreachable", set())
    monkeypatch.setattr(greeting, "probe_definitions", lambda: PROBE)
    monkeypatch.setattr(runner, "preflight", lambda *_: ())

    def make(roles: dict[str, Callable[[Path], None]]) -> Run:
        def provision(plans: Any, probe: Any, settings: Any) -> None:
            name = runner.ctx_host.get().name
            roles[name](tmp_path / name)

        for name in roles:
            (tmp_path / name).mkdir(exist_ok=True)
        # one machine plays every host, so each needs its own place for what there is one of on a host
        monkeypatch.setattr(greeting, "FILE", str(tmp_path / "questions"))
        monkeypatch.setattr(lease, "RUNTIME", str(tmp_path / "run"))
        monkeypatch.setattr(lease, "FILE", str(tmp_path / "run/lease.json"))
        monkeypatch.setattr(runner, "load_provision", lambda: provision)
        project = Project(tmp_path, tmp_path, tuple(HostEntry(name, "boxes", {}) for name in roles))
        return Run(project, dict.fromkeys(roles, ()), dict.fromkeys(roles, Settings()), None)

    return make
