"""One command over one channel: any bytes, bounded output, and a sudo password that is sent only when asked for."""

from __future__ import annotations

import io
import subprocess
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from gevent.event import Event
from gevent.os import make_nonblocking, nb_read, nb_write
from paramiko import ChannelException

from rigup.connection.command_channel import (
    Beginning,
    Limits,
    Sessions,
    ShellSilent,
    SudoPassword,
    TooMuchOutput,
    as_bytes,
    authenticate,
    receive,
    run,
    send,
)
from rigup.connection.login_shell import MARK
from rigup.errors import HostFailed
from rigup.host import SessionsInUse
from tests.hostile import SAFETY_S

PASSWORD = SudoPassword("rigup-asks-4711:", "unseen")


class LocalChannel:
    """A channel whose commands run in a shell here; `sent` is what they were given on standard input."""

    def __init__(self) -> None:
        self.sent, self.closed, self.exit_status = b"", False, -1
        self.status_event = Event()

    def exec_command(self, line: str) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["sh", "-c", line], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        streams = (self.process.stdin, self.process.stdout, self.process.stderr)
        self.stdin, self.stdout, self.stderr = (stream.fileno() for stream in streams if stream)
        for descriptor in (self.stdin, self.stdout, self.stderr):
            make_nonblocking(descriptor)

    def recv(self, most: int) -> bytes:
        data = nb_read(self.stdout, most)
        if not data:
            self.exit_status = self.process.wait()
            self.status_event.set()
        return data

    def recv_stderr(self, most: int) -> bytes:
        return nb_read(self.stderr, most)

    def sendall(self, data: bytes) -> None:
        self.sent += data
        while data:
            data = data[nb_write(self.stdin, data) :]

    def shutdown_write(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]

    def settimeout(self, seconds: float | None) -> None:
        pass

    def recv_exit_status(self) -> int:
        return self.exit_status

    def exit_status_ready(self) -> bool:
        return self.status_event.is_set()

    def get_transport(self) -> Any:
        return SimpleNamespace(is_active=lambda: True)

    def close(self) -> None:
        self.closed = True
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()  # type: ignore[union-attr]
        self.process.wait()


def asked(text: str, stdin: str | None = None, password: SudoPassword | None = None, **limits: int) -> Any:
    channel = LocalChannel()
    status, output = run(channel, "box", text, as_bytes(stdin), 20, password, Limits(**limits))
    assert channel.closed
    return channel, status, output


def test_both_streams_the_status_and_standard_input() -> None:
    _, status, output = asked("cat; echo trouble >&2; printf 'no newline'; exit 3", stdin="one\ntwo")
    assert (status, output.stdout_lines, output.stderr_lines) == (3, ["one", "two", "no newline"], ["trouble"])


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    _, status, output = asked(r"printf 'gr\374n\n\377\376'; printf 'Stra\337e\n' >&2")
    assert (status, output.stdout_lines, output.stderr_lines) == (0, ["gr\ufffdn", "\ufffd\ufffd"], ["Stra\ufffde"])


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("yes 0123456789", "a command printed more than 2 MiB on standard output and was stopped"),
        ("yes 0123456789 >&2", "a command printed more than 1 MiB on standard error and was stopped"),
        ("cat /dev/zero", "a command printed a line of more than 1 MiB and was stopped"),
        ("yes ''", "a command printed more than 1000 lines and was stopped"),
    ],
)
def test_a_flood_is_ended(line: str, what: str) -> None:
    lines = 1000 if line == "yes ''" else 1_000_000
    with pytest.raises(TooMuchOutput) as caught:
        asked(line, stdout=2 << 20, stderr=1 << 20, line=1 << 20, lines=lines)
    assert caught.value.message == f"box: {what}"


def test_a_command_that_does_not_end_is_ended() -> None:
    channel = LocalChannel()
    with gevent.Timeout(SAFETY_S), pytest.raises(TimeoutError):
        run(channel, "box", "exec sleep 3600", b"", 0.2, None, Limits())
    assert channel.closed


def begun(line: str, seconds: float) -> tuple[Any, list[str]]:
    """The outcome of a command that must begin in time, and the lines that were heard meanwhile."""
    heard: list[str] = []
    channel = LocalChannel()
    try:
        outcome: Any = run(channel, "box", line, b"", SAFETY_S, None, Limits(), Beginning(seconds, heard.append))
    except ShellSilent as error:
        outcome = error
    return outcome, heard


def test_a_login_shell_that_hangs_is_told_from_a_command_that_takes_its_time() -> None:
    outcome, heard = begun("echo hello from .bashrc; sleep 5", 0.3)
    assert isinstance(outcome, ShellSilent) and heard == ["hello from .bashrc"]
    (status, _), heard = begun(f"echo {MARK}; sleep 1; echo done", 0.5)
    assert (status, heard) == (0, [MARK, "done"])


@pytest.mark.parametrize("line", ["exit 3", "echo this account is disabled; exit 3"])
def test_a_login_shell_that_ends_without_the_command_is_waited_for_no_longer(line: str) -> None:
    (status, _), _ = begun(line, SAFETY_S)
    assert status == 3


def test_a_command_that_reads_no_input_is_none_the_worse() -> None:
    _, status, output = asked("exec 0<&-; echo done", stdin="x" * (1 << 20))
    assert (status, output.stdout) == (0, "done")


SUDO_ASKS = f"printf %s '{PASSWORD.prompt}' >&2; read answer; "
BEGINS = f"echo {MARK}; echo {MARK} >&2; "


def test_the_password_is_sent_when_sudo_asks_and_the_input_follows() -> None:
    channel, status, output = asked(f'{SUDO_ASKS}[ "$answer" = unseen ] || exit 1; {BEGINS}cat', "text", PASSWORD)
    assert (status, output.stdout_lines[1:], channel.sent) == (0, ["text"], b"unseen\ntext\n")
    assert output.stderr_lines == [MARK]


def test_a_command_for_which_sudo_asks_nothing_never_gets_the_password() -> None:
    channel, status, output = asked(f"{BEGINS}cat", "text", PASSWORD)
    assert (status, output.stdout_lines[1:], channel.sent) == (0, ["text"], b"text\n")
    channel = LocalChannel()
    assert send(channel, "box", f"{BEGINS}cat >&2", PASSWORD, io.BytesIO(b"content"))
    assert channel.sent == b"content"
    channel, file = LocalChannel(), io.BytesIO()
    assert receive(channel, "box", f"{BEGINS}printf content", PASSWORD, file)
    assert (channel.sent, file.getvalue()) == (b"", b"content")


def test_a_password_that_is_not_taken_is_sent_once() -> None:
    again = f"{SUDO_ASKS}echo 'Sorry, try again.' >&2; {SUDO_ASKS}echo 'sudo: no password was provided' >&2; exit 1"
    channel, status, output = asked(again, "text", PASSWORD)
    assert status == 1
    assert channel.sent.count(b"unseen") == 1
    assert output.stderr_lines == ["Sorry, try again.", "sudo: no password was provided"]


DRIP = "while :; do printf x; sleep 0.05; done"


def outcome_of_upload(channel: LocalChannel, line: str) -> Any:
    return send(channel, "box", line, None, io.BytesIO(b"content"))


def outcome_of_download(channel: LocalChannel, line: str) -> Any:
    return receive(channel, "box", line, None, io.BytesIO())


@pytest.mark.parametrize(
    ("transfer", "line"),
    [
        (outcome_of_upload, f"cat >/dev/null; {DRIP}"),
        (outcome_of_upload, "cat >/dev/null; exec cat /dev/zero"),
        (outcome_of_upload, "cat >/dev/null; exec sleep 3600"),
        (outcome_of_download, DRIP),
        (outcome_of_download, f"{BEGINS}{DRIP}"),
        (lambda channel, line: authenticate(channel, "box", PASSWORD, 0.5), f"exec >&2; {DRIP}"),
    ],
    ids=["drips after it", "floods after it", "never ends", "drips before a file", "drips a file", "drips for sudo"],
)
def test_a_host_that_sends_just_enough_to_seem_alive_is_given_up(
    monkeypatch: pytest.MonkeyPatch, transfer: Any, line: str
) -> None:
    monkeypatch.setattr("rigup.connection.command_channel.QUIET_SECONDS", 0.5)
    channel = LocalChannel()
    if transfer not in (outcome_of_upload, outcome_of_download):
        channel.exec_command(line)
    with gevent.Timeout(SAFETY_S), pytest.raises(OSError):
        transfer(channel, line)
    channel.close()


class Transport:
    """Opens no more sessions at a time than it is told."""

    def __init__(self, most: int) -> None:
        self.most, self.open, self.refusals = most, [], 0

    def open_session(self, timeout: float) -> Any:
        if sum(not channel.closed for channel in self.open) >= self.most:
            self.refusals += 1
            raise ChannelException(2, "Connect failed")
        self.open.append(SimpleNamespace(closed=False))
        return self.open[-1]


def test_a_server_that_takes_one_session_gets_one_at_a_time() -> None:
    sessions, transport = Sessions("box"), Transport(1)
    first = sessions.open(transport)
    gevent.spawn_later(0.2, setattr, first, "closed", True)
    second = sessions.open(transport)
    assert second is not first
    assert transport.refusals == 1
    second.closed = True
    sessions.open(transport)
    assert transport.refusals == 1


def test_who_asks_again_at_once_keeps_nobody_out() -> None:
    sessions, transport, turns = Sessions("box"), Transport(1), []

    def ask_over_and_over() -> None:
        while True:
            channel = sessions.open(transport)
            turns.append("greedy")
            gevent.sleep(0.01)
            channel.closed = True

    greedy = gevent.spawn(ask_over_and_over)
    gevent.sleep(0)
    try:
        for _ in range(3):
            with gevent.Timeout(2):
                sessions.open(transport).closed = True
            turns.append("other")
    finally:
        greedy.kill()
    assert turns == ["greedy", "other"] * 3


def test_who_waits_too_long_for_another_to_end_has_not_lost_the_connection() -> None:
    sessions, transport = Sessions("box"), Transport(1)
    sessions.open(transport)
    with pytest.raises(SessionsInUse), gevent.Timeout(0.2):
        sessions.open(transport)


def test_a_server_that_opens_no_session_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rigup.connection.command_channel.SESSION_SECONDS", 0.1)
    with pytest.raises(HostFailed) as caught:
        Sessions("box").open(Transport(0))
    assert caught.value.message == "box: its SSH server refuses to open a session (Connect failed)"
