"""The order in which keepalived's files change, and what is said where it cannot hold the address."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from rigup.errors import HostFailed
from rigup.gateway.keepalived import DIGEST
from rigup.gateway.paths import SHARED_FILE, SHARED_UNIT, SHARED_UNIT_FILE
from rigup.operations.gateway import shared_address as operations
from rigup.operations.primitives import remote

URL = "http://10.0.0.5:8080/health"
UNIT = f"[Service]\nExecStart=keepalived\n{DIGEST}"


class Machine:
    """Stands for a host: keeps what is run and written. running: whether keepalived is. earlier: its unit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, earlier: str = "", status: str = "200") -> None:
        self.name, self.earlier, self.status = "gw1.lan", earlier, status
        self.done: list[str] = []
        self.refused, self.interface = False, "eth0"
        monkeypatch.setattr(remote, "run", self.run)
        monkeypatch.setattr(remote, "check_output", self.run)
        monkeypatch.setattr(remote, "script", lambda host, text, *words, **_: self.run(host, text, *words))
        monkeypatch.setattr(remote, "write_file", lambda host, path, text: self.run(host, "write", path))
        monkeypatch.setattr(operations, "HELD_SECONDS", 0.1)

    def run(self, host: Any, *words: str, **_: Any) -> Mock:
        if words[0] not in ("cat", "curl", "test") and "is-active" not in words:
            self.done.append(" ".join(words))
        stdout = {"cat": self.earlier, "curl": self.status}.get(words[0], "")
        refused = self.refused and "--config-test" in words
        stderr = f"({operations.CANDIDATE}: Line 5) Unknown keyword 'x'\nTerminated" if refused else "Terminated"
        running = bool(self.earlier) or "is-active" not in words
        there = self.interface in words[-1] or words[0] != "test"
        return Mock(ok=running and there, stdout=stdout, stderr=stderr)


def test_a_change_is_a_reload_and_the_digest_is_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Machine(monkeypatch, earlier=f"{UNIT}1")
    operations._place(host, "eth0", "new", f"{UNIT}2", URL)
    last = [line for line in host.done if "config-test" not in line]
    assert last == [
        f"write {operations.CANDIDATE}",
        f"mv -- {operations.CANDIDATE} {SHARED_FILE}",
        f"systemctl reload {SHARED_UNIT}",
        f"write {SHARED_UNIT_FILE}",
        "systemctl daemon-reload",
        f"systemctl --quiet enable {SHARED_UNIT}",
    ]


@pytest.mark.parametrize("earlier", ["", f"[Service]\nExecStart=another\n{DIGEST}1"], ids=["first", "another unit"])
def test_another_unit_is_a_restart(monkeypatch: pytest.MonkeyPatch, earlier: str) -> None:
    host: Any = Machine(monkeypatch, earlier)
    operations._place(host, "eth0", "new", f"{UNIT}2", URL)
    assert any("restart" in line for line in host.done)
    assert not any("systemctl reload" in line for line in host.done)


def test_a_configuration_that_keepalived_refuses_is_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Machine(monkeypatch)
    host.refused = True
    with pytest.raises(HostFailed) as caught:
        operations._place(host, "eth0", "new", UNIT, URL)
    assert (
        caught.value.message
        == f"gw1.lan: keepalived refuses the configuration: ({SHARED_FILE}: Line 5) Unknown keyword 'x'"
    )
    assert not any(line.rpartition(" ")[2] == SHARED_FILE for line in host.done)


def test_a_host_without_the_interface_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Machine(monkeypatch)
    host.interface = "enp1s0"
    with pytest.raises(HostFailed) as caught:
        operations._place(host, "eth0", "new", UNIT, URL)
    assert caught.value.message == "gw1.lan: gateway.shared_address.interface: this host has no eth0"
    assert host.done == []


def test_an_address_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Machine(monkeypatch, status="000")
    with pytest.raises(HostFailed) as caught:
        operations._place(host, "eth0", "new", UNIT, URL)
    assert caught.value.message == f"gw1.lan: no gateway answers {URL}"
    assert caught.value.hint == f"on the host: journalctl -u {SHARED_UNIT}"
