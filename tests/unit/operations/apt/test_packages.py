"""Debian packages need apt only where something is missing, and wait for whoever holds its lock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.apt import commands, packages, room
from rigup.operations.primitives.steps import error_of
from tests.unit.operations.apt.test_commands import LOCKED, Scripted


def test_what_is_there_needs_no_apt() -> None:
    assert list(packages.installed_packages._inner(packages=[])) == []


def test_what_is_missing_waits_for_who_holds_apts_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Scripted({"sh": [LOCKED]})
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.0)
    (install,) = packages.installed_packages._inner(packages=["curl"])
    assert install.function(None, host) is False
    error = error_of(host)
    assert isinstance(error, HostFailed)
    assert error.message.startswith("box: packages: process 4711 (unattended-upgr) ")


class BrokenSource(Scripted):
    """Stands for a host where apt-get update fails because of one source; `listed` is what its lists have."""

    def __init__(self, listed: str) -> None:
        super().__init__({})
        self.listed = listed

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        line = command.get_raw_value()
        self.commands.append(line)
        updates = line.endswith("update")
        text = "E: The repository 'https://enterprise.example' is not signed.\n" if updates else ""
        listing = self.listed if line.startswith("apt-cache") else ""
        return not updates, SimpleNamespace(stdout=listing, stderr=text)


@pytest.mark.parametrize("listed", ["curl | 8.14.1-2 | http://mirror trixie/main", ""])
def test_a_source_that_fails_stops_only_packages_that_no_other_has(listed: str) -> None:
    host: Any = BrokenSource(listed)
    (install,) = packages.installed_packages._inner(packages=["curl"])
    assert install.function(None, host) is bool(listed)
    assert any(line.endswith("install curl") and "systemd-run" in line for line in host.commands) is bool(listed)
    if not listed:
        error = error_of(host)
        assert isinstance(error, HostFailed)
        assert error.message == "box: packages: The repository 'https://enterprise.example' is not signed."


def test_what_does_not_fit_is_refused_before_apt_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = BrokenSource("curl | 8.14.1-2 | http://mirror trixie/main")

    def refuse(_: Any, step: str, words: tuple[str, ...]) -> None:
        raise HostFailed(f"{step}: {words[-1]}")

    monkeypatch.setattr(room, "require_room", refuse)
    (install,) = packages.installed_packages._inner(packages=["curl"])
    assert install.function(None, host) is False
    error = error_of(host)
    assert isinstance(error, HostFailed)
    assert error.message == "packages: curl"
    assert not any("install curl" in line and "systemd-run" in line for line in host.commands)
