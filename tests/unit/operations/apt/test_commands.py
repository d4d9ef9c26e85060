"""apt's words understood: who holds its lock, why it failed, which versions there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rigup.errors import HostFailed
from rigup.operations.apt import commands
from rigup.operations.primitives import jobs, proxy

LOCKED = """\
-1 (undefined) /run/host/os-release...
379 cron /run/crond.pid
4711 unattended-upgr /var/lib/dpkg/lock-frontend
4711 unattended-upgr /var/lib/dpkg/lock
"""
MADISON = """\
nvidia-open | 590.48.01-1 | http://mirror ./ Packages
nvidia-open | 580.178.04-1 | http://mirror ./ Packages
nvidia-open | 580.178.04-1 | http://other ./ Packages
nvidia-fabricmanager | 580.178.04-1ubuntu2 | http://mirror ./ Packages
"""


class Scripted:
    """Stands for a host with apt: answers by the first word of a command, the next time with the next answer."""

    def __init__(self, answers: dict[str, list[str]]) -> None:
        self.name, self.data = "box", SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.answers = answers
        self.commands: list[str] = []
        self.connector_data: dict[str, Any] = {}

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        line = command.get_raw_value()
        self.commands.append(line)
        told = self.answers[line.split()[0]]
        return True, SimpleNamespace(stdout=told.pop(0) if len(told) > 1 else told[0], stderr="")


def test_the_holder_of_the_lock_is_named() -> None:
    assert commands.lock_holder(LOCKED) == "process 4711 (unattended-upgr)"
    assert commands.lock_holder("379 cron /run/crond.pid\n") == ""


def test_waits_while_the_lock_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "POLL_SECONDS", 0.0)
    host: Any = Scripted({"sh": [LOCKED, LOCKED, ""]})
    commands.wait_for_lock(host, "driver")
    assert len(host.commands) == 3


def test_gives_up_after_a_while_and_names_the_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.0)
    with pytest.raises(HostFailed) as caught:
        host: Any = Scripted({"sh": [LOCKED]})
        commands.wait_for_lock(host, "driver")
    assert caught.value.message.endswith("process 4711 (unattended-upgr) has held apt's lock for 0 s")
    assert "ps 4711" in (caught.value.hint or "")


def test_a_step_whose_turn_comes_after_ctrl_c_leaves_apt_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_cancelled", False)
    host: Any = Scripted({"sh": [""], "dpkg": [""], "find": [""]})
    with commands.turn(host):
        waiting = gevent.spawn(commands.install, host, "environment", ["curl"])
        gevent.sleep(0)
        jobs.cancel()
    with pytest.raises(jobs.Cancelled):
        waiting.get(timeout=60)
    assert host.commands == []


def test_a_first_boot_is_waited_for_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "POLL_SECONDS", 0.0)
    said: list[str] = []
    monkeypatch.setattr(commands, "report", lambda progress: said.append(progress.text))
    host: Any = Scripted({"sh": [f"cloud-init\n{LOCKED}", LOCKED, ""]})
    commands.wait_for_lock(host, "packages")
    assert said == [
        "waiting for cloud-init to finish",
        "waiting for apt's lock, held by process 4711 (unattended-upgr)",
    ]


def test_a_first_boot_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.0)
    with pytest.raises(HostFailed) as caught:
        host: Any = Scripted({"sh": ["cloud-init\n"]})
        commands.wait_for_lock(host, "packages")
    assert caught.value.message == "box: packages: cloud-init has been setting up the host for 0 s"
    assert "cloud-init status --long" in (caught.value.hint or "")


class Contended(Scripted):
    """Stands for a host where another process takes the lock between the check and apt, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__({})
        self.times = times

    @property
    def installs(self) -> list[str]:
        return [line for line in self.commands if "systemd-run" in line]

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        self.commands.append(command.get_raw_value())
        if self.commands[-1:] != self.installs[-1:]:
            return True, SimpleNamespace(stdout="", stderr="")
        lost = len(self.installs) <= self.times
        return not lost, SimpleNamespace(stdout="", stderr="E: Could not get lock /var/lib/dpkg/lock-frontend.\n")


def test_apt_is_tried_again_if_another_process_was_faster() -> None:
    host: Any = Contended(times=2)
    commands.install(host, "driver", ["nvidia-open"])
    assert len(host.installs) == 3
    with pytest.raises(HostFailed, match="lock-frontend"):
        other: Any = Contended(times=99)
        commands.install(other, "driver", ["nvidia-open"])


def test_nothing_asks_and_nothing_restarts_services_behind_rigup() -> None:
    host: Any = Contended(times=0)
    commands.install(host, "driver", ["nvidia-open"])
    (line,) = host.installs
    assert f"--property={proxy.PROPERTY}" in line
    assert "--setenv=DEBIAN_FRONTEND=noninteractive --setenv=NEEDRESTART_SUSPEND=1" in line


class Unfinished(Contended):
    """Stands for a host with a package that dpkg cannot finish: `said` is what that prints."""

    def __init__(self, said: str) -> None:
        super().__init__(0)
        self.said = said

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        self.commands.append(command.get_raw_value())
        line = self.commands[-1]
        if "systemd-run" in line:
            return "--configure" not in line, SimpleNamespace(stdout="", stderr=self.said)
        return True, SimpleNamespace(stdout="a package" if line.startswith("dpkg --audit") else "", stderr="")


def test_a_package_that_cannot_be_finished_is_told_before_any_repository() -> None:
    host: Any = Unfinished("Setting up x (1) ...\nx: no such device\ndpkg: error processing package x (--configure):\n")
    with pytest.raises(HostFailed) as caught:
        commands.update(host, "driver", "/etc/apt/sources.list.d/a.sources", about="http://a/", hint="set a mirror")
    assert caught.value.message == "box: driver: dpkg cannot finish x: x: no such device"
    assert (caught.value.hint or "").startswith(f"{commands.JOURNAL}; ")
    assert "apt-get remove x;" in (caught.value.hint or "")


class Fetching(Contended):
    """Stands for a host whose apt-get update fails for want of the network."""

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        fetches = "systemd-run" in command.get_raw_value()
        return not fetches, SimpleNamespace(stdout="", stderr="E: Failed to fetch http://a/InRelease  refused\n")


def test_a_list_that_cannot_be_fetched_names_its_repository() -> None:
    host: Any = Fetching(0)
    with pytest.raises(HostFailed) as caught:
        commands.update(host, "driver", "/etc/apt/sources.list.d/a.sources", about="http://a/", hint="set a mirror")
    assert caught.value.message == "box: http://a/: Failed to fetch http://a/InRelease  refused"
    assert caught.value.hint == "set a mirror"


def test_versions_are_listed_once_newest_first() -> None:
    host: Any = Scripted({"apt-cache": [MADISON]})
    found = commands.versions(host, ["nvidia-open", "nvidia-fabricmanager"])
    assert found == {
        "nvidia-open": ("590.48.01-1", "580.178.04-1"),
        "nvidia-fabricmanager": ("580.178.04-1ubuntu2",),
    }


def test_the_locked_version_is_found_whatever_its_revision() -> None:
    there = {"a": ("590.1-1", "580.2-1ubuntu2", "580.2-1"), "b": ("1:580.2-3",)}
    assert commands.exact("box", {"a": "580.2", "b": "580.2"}, there) == ("a=580.2-1ubuntu2", "b=1:580.2-3")


def test_a_version_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(HostFailed) as caught:
        commands.exact("box", {"a": "580.3"}, {"a": ("590.1-1", "580.2-1")})
    assert caught.value.message == "box: a 580.3 is not in the host's package sources"
    assert caught.value.hint == "available: 590.1, 580.2; pin one of them with rigup lock --upgrade"
