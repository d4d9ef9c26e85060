"""Debian packages wait for apt only where something is missing, and leave the rest to pyinfra's own operation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.operations import apt

from rigup.errors import HostFailed
from rigup.operations.apt import commands, packages
from rigup.operations.primitives.steps import error_of
from tests.unit.operations.apt.test_commands import LOCKED, Scripted


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How pyinfra's operation was called; it stands for its commands with one word."""
    calls: list[dict[str, Any]] = []

    def inner(**arguments: Any) -> Any:
        calls.append(arguments)
        yield "apt-get"

    monkeypatch.setattr(apt, "packages", SimpleNamespace(_inner=inner))
    return calls


def test_what_is_there_needs_no_apt(asked: list[dict[str, Any]]) -> None:
    assert list(packages.installed_packages._inner(packages=[])) == asked == []


def test_what_is_missing_waits_for_who_holds_apts_lock(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host: Any = Scripted({"sh": [LOCKED]})
    host.connector_data = {}
    monkeypatch.setattr(commands, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(packages, "host", host)
    wait, then = packages.installed_packages._inner(packages=["curl"])
    assert (then, asked[0]["packages"]) == ("apt-get", ["curl"])

    assert wait.function(None, host) is False
    error = error_of(host)
    assert isinstance(error, HostFailed)
    assert error.message.startswith("box: packages: process 4711 (unattended-upgr) ")


class BrokenSource(Scripted):
    """Stands for a host where apt-get update fails because of one source; `listed` is what its lists have."""

    def __init__(self, listed: str) -> None:
        super().__init__({})
        self.listed, self.connector_data = listed, {}

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        line = command.get_raw_value()
        updates = "systemd-run" in line
        text = "E: The repository 'https://enterprise.example' is not signed.\n" if updates else ""
        listing = self.listed if line.startswith("apt-cache") else ""
        return not updates, SimpleNamespace(stdout=listing, stderr=text)


@pytest.mark.parametrize("listed", ["curl | 8.14.1-2 | http://mirror trixie/main", ""])
def test_a_source_that_fails_stops_only_packages_that_no_other_has(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    host: Any = BrokenSource(listed)
    monkeypatch.setattr(packages, "host", host)
    update, _ = packages.installed_packages._inner(packages=["curl"])
    assert update.function(None, host) is bool(listed)
    if not listed:
        error = error_of(host)
        assert isinstance(error, HostFailed)
        assert error.message == "box: packages: The repository 'https://enterprise.example' is not signed."


def test_what_does_not_fit_is_refused_before_apt_begins(
    asked: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    host: Any = BrokenSource("curl | 8.14.1-2 | http://mirror trixie/main")

    def refuse(_: Any, step: str, words: tuple[str, ...]) -> None:
        raise HostFailed(f"{step}: {' '.join(words)}")

    monkeypatch.setattr(packages, "host", host)
    monkeypatch.setattr(packages, "require_room", refuse)
    ready, _ = packages.installed_packages._inner(packages=["curl"])
    assert ready.function(None, host) is False
    error = error_of(host)
    assert isinstance(error, HostFailed)
    assert error.message == "packages: --no-install-recommends install curl"
