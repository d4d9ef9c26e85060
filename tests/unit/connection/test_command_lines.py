"""Commands that are read while they run: each stream line by line, whatever the login shell prints before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rigup.connection import command_lines
from rigup.connection.command_lines import run_line_by_line
from rigup.connection.login_shell import with_marker
from tests.unit.connection.local_channel import LocalChannel


def host_with(before: str = "", channels: list[LocalChannel] | None = None) -> Any:
    """A host whose login shell runs `before` first."""

    def stream(command: Any, _sudo: bool) -> tuple[LocalChannel, bytes]:
        channel = LocalChannel(before + str(with_marker(command).get_raw_value()), {})
        if channels is not None:
            channels.append(channel)
        return channel, b""

    state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
    return SimpleNamespace(
        name="box", data=SimpleNamespace(_sudo=None), state=state, connector=SimpleNamespace(stream=stream)
    )


def run(host: Any, script: str) -> tuple[int, list[str], list[str]]:
    out: list[str] = []
    err: list[str] = []
    return run_line_by_line(host, ("sh", "-c", script), out.append, err.append), out, err


def test_both_streams_and_the_exit_status() -> None:
    script = "echo one; echo bad >&2; printf 'last\\377'; exit 3"
    assert run(host_with(), script) == (3, ["one", "last\N{REPLACEMENT CHARACTER}"], ["bad"])


def test_what_the_login_shell_prints_is_left_out() -> None:
    assert run(host_with("echo welcome; echo warned >&2; "), "echo one; echo two >&2") == (0, ["one"], ["two"])


def test_a_shell_that_does_not_begin_the_command_is_quoted() -> None:
    assert run(host_with("echo this account is closed; exit 1; "), "echo one") == (1, ["this account is closed"], [])


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_lines, "LONGEST_LINE", 10)
    assert run(host_with(), "printf 1234567890123456789012345") == (0, ["1234567890", "1234567890", "12345"], [])


def test_it_is_read_while_it_runs_and_left_early() -> None:
    out: list[str] = []
    channels: list[LocalChannel] = []
    reading = gevent.spawn(
        run_line_by_line, host_with(channels=channels), ("sh", "-c", "echo one; sleep 60"), out.append, out.append
    )
    with gevent.Timeout(10):
        while not out:
            gevent.sleep(0.01)
    reading.kill()
    assert out == ["one"]
    assert channels[0].process.poll() is not None


def test_a_lost_connection_is_not_an_end() -> None:
    class Lost(LocalChannel):
        def recv_exit_status(self) -> int:
            return -1

    host = host_with()
    host.connector.stream = lambda command, _sudo: (Lost(str(with_marker(command).get_raw_value()), {}), b"")
    with pytest.raises(ConnectionResetError, match="before the command did"):
        run(host, "echo one")
