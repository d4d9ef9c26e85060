"""Many hosts are greeted side by side, and nobody who has begun that waits for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rigup.connection import connections
from rigup.connection.connections import PARALLEL_HOSTS, Connections
from rigup.connection.handshake import WaitingFor
from rigup.host import state_of
from rigup.operations.primitives.progress import Progress
from rigup.project.inventory import HostEntry, Project
from tests.unit.connection.local_connector import LocalConnector

HOSTS = PARALLEL_HOSTS + 20


def test_more_hosts_than_are_greeted_at_a_time_hold_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, speaking, most = Event(), 0, 0

    def greets(host: Any, password: str | None) -> str:
        nonlocal speaking, most
        speaking += 1
        most = max(most, speaking)
        answers.wait()
        speaking -= 1
        return f"greeting of {host.name}"

    monkeypatch.setattr(connections, "RigupSSHConnector", LocalConnector)
    monkeypatch.setattr(connections, "shake_hands_as_root", greets)
    entries = tuple(HostEntry(f"box{number}", "boxes", {}) for number in range(HOSTS))
    begun = Connections(Project(tmp_path, tmp_path, entries).data_by_host, None)
    with gevent.Timeout(10):
        begun.begin()
        gevent.idle()
        answers.set()
        said: list[Any] = [begun.handshake(host) for host in begun.state.inventory]
    assert said == [f"greeting of {entry.name}" for entry in entries]
    assert most == PARALLEL_HOSTS
    begun.leave()


def test_a_host_that_greets_slowly_is_said_to_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, said = Event(), []

    def greets(host: Any, password: str | None) -> str:
        state_of(host, WaitingFor).what = "its login shell"
        told.wait(timeout=60)
        return "hello"

    def heard(progress: Progress) -> None:
        said.append((progress.host, progress.step, progress.text))
        told.set()

    monkeypatch.setattr(connections, "RigupSSHConnector", LocalConnector)
    monkeypatch.setattr(connections, "shake_hands_as_root", greets)
    monkeypatch.setattr(connections, "SLOW_SECONDS", 0.01)
    monkeypatch.setattr(connections, "report", heard)
    greeting = Connections(Project(tmp_path, tmp_path, (HostEntry("box", "boxes", {}),)).data_by_host, None)
    (host,) = greeting.state.inventory
    assert greeting.handshake(host) == "hello"
    assert said[0] == ("box", "connect", "waiting for its login shell")
    greeting.leave()
