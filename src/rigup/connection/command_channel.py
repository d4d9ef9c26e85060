"""One command over one SSH channel: its standard input, its bounded output in any bytes, and its exit status.

Output is not trusted. It is decoded with U+FFFD for invalid UTF-8, and a command that prints more than its `Limits` is
stopped. The sudo password goes over standard input, and only after sudo has printed the prompt made for this command:
if sudo needs none, it is never sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import gevent
from gevent.event import Event
from paramiko import ChannelException

from rigup.connection.login_shell import MARK
from rigup.connection.pyinfra_internals import CommandOutput, OutputLine
from rigup.errors import HostFailed
from rigup.host import SessionsInUse

QUIET_SECONDS = 60
SESSION_SECONDS = 10
CHUNK = 1 << 18


@dataclass(frozen=True)
class Limits:
    """The most that one command may print, in bytes; `lines` counts both streams."""

    stdout: int = 16 << 20
    stderr: int = 1 << 20
    line: int = 4 << 20
    lines: int = 200_000


class TooMuchOutput(HostFailed):
    """Raised for a command that was stopped because it printed more than its limits."""

    def __init__(self, host: str, what: str) -> None:
        super().__init__(
            f"{host}: a command printed {what} and was stopped",
            f"look for endless output, for example from a login script: ssh {host} true | head",
        )


class SudoPassword(NamedTuple):
    """The password, and sudo's prompt for it: unique to one command, so that nothing else prints it."""

    prompt: str
    text: str


class Sessions:
    """The sessions of one connection, limited to what the server allows (sshd's MaxSessions).

    Where all are taken, the next goes to the caller that has waited longest: a step that asks over and over whether its
    job has ended would otherwise keep every other step out.
    """

    def __init__(self, host: str) -> None:
        self._host, self._most = host, 1 << 16
        self._channels: list[Any] = []
        self._waiting: list[object] = []

    def open(self, transport: Any) -> Any:
        """A new channel, once there is room for it.

        Raises HostFailed if the server refuses one although no other is open, SessionsInUse if gevent's timeout ends
        the wait, SSHException or OSError where the connection is lost.
        """
        turn = object()
        self._waiting.append(turn)
        try:
            return self._opened(transport, turn)
        finally:
            self._waiting.remove(turn)

    def _opened(self, transport: Any, turn: object) -> Any:
        refused_since = 0.0
        while True:
            self._channels = [channel for channel in self._channels if not channel.closed]
            if self._waiting[0] is turn and len(self._channels) < self._most:
                try:
                    channel = transport.open_session(timeout=QUIET_SECONDS)
                    self._channels.append(channel)
                    return channel
                except ChannelException as error:
                    self._most = max(1, len(self._channels))
                    refused_since = refused_since or time.monotonic()
                    if not self._channels and time.monotonic() - refused_since > SESSION_SECONDS:
                        raise HostFailed(
                            f"{self._host}: its SSH server refuses to open a session ({error.text or error})",
                            "set MaxSessions to 10 or more in its sshd_config and reload sshd",
                        ) from None
            try:
                gevent.sleep(0.05)
            except gevent.Timeout:
                raise SessionsInUse from None


class ShellSilent(TimeoutError):
    """Raised for a command that the login shell had not begun in time."""


class Beginning(NamedTuple):
    """What is awaited of a command first. seconds: for the login shell to begin it. heard: called with each line."""

    seconds: float
    heard: Callable[[str], None]


def run(
    channel: Any,
    host: str,
    line: str,
    stdin: bytes,
    timeout: float,
    password: SudoPassword | None,
    limits: Limits,
    beginning: Beginning | None = None,
) -> tuple[int, CommandOutput]:
    """Runs a command line to its end, and closes the channel. Returns the exit status and the output.

    host: its name, for messages. Raises TooMuchOutput, TimeoutError after `timeout` seconds without an end, OSError or
    SSHException where the connection is lost; ShellSilent where the login shell takes longer than `beginning` gives it.
    """
    lines: list[OutputLine] = []
    begun = Event()

    def heard(text: str) -> None:
        if MARK in text:
            begun.set()
        if beginning:
            beginning.heard(text)

    streams = (
        _Output("stdout", channel.recv, host, limits, lines, heard),
        _Output("stderr", channel.recv_stderr, host, limits, lines),
    )
    greenlets = []
    try:
        channel.exec_command(line)
        if password:
            streams[1].take(authenticate(channel, host, password, min(timeout, QUIET_SECONDS)))
        readers = [gevent.spawn(_outcome, stream.read) for stream in streams]
        greenlets = [*readers, gevent.spawn(_outcome, lambda: _feed(channel, stdin))]
        if beginning:
            _await_shell(readers, begun, beginning.seconds)
        _wait(channel, readers, timeout)
        status = channel.recv_exit_status()
    finally:
        channel.close()
        gevent.killall(greenlets)
    if status < 0 and not channel.get_transport().is_active():
        raise ConnectionResetError("the connection ended before the command did")
    if password:
        lines = [OutputLine(each.buffer_name, each.line.replace(password.prompt, "")) for each in lines]
    return status, CommandOutput(lines)


def authenticate(channel: Any, host: str, password: SudoPassword, seconds: float) -> bytes:
    """Waits until the command under sudo has begun or ended, and gives sudo the password once if it asks.

    Returns the standard error read so far. Raises TimeoutError if neither happens.
    """
    prompt, begun, heard, given = password.prompt.encode(), MARK.encode(), b"", False
    with gevent.Timeout(seconds, TimeoutError):
        while begun not in heard and (chunk := channel.recv_stderr(CHUNK)):
            heard += chunk
            if len(heard) > Limits.stderr:
                raise TooMuchOutput(host, f"more than {Limits.stderr >> 20} MiB on standard error")
            if not given and prompt in heard:
                channel.sendall(password.text.encode() + b"\n")
                given = True
            elif heard.count(prompt) > 1:
                channel.shutdown_write()
    return heard


def send(channel: Any, host: str, line: str, password: SudoPassword | None, file: IO[bytes]) -> bool:
    """Runs a command with a file on standard input.

    Raises OSError when the connection goes silent, or takes QUIET_SECONDS for a CHUNK: a drip is not a transfer.
    """
    channel.exec_command(line)
    if password:
        authenticate(channel, host, password, QUIET_SECONDS)
    try:
        while chunk := file.read(CHUNK):
            with gevent.Timeout(QUIET_SECONDS, TimeoutError):
                channel.sendall(chunk)
    except OSError:
        if not channel.exit_status_ready():  # otherwise it gave up midway, for example on a full disk
            raise
    channel.shutdown_write()
    return _succeeds(channel)


def receive(channel: Any, host: str, line: str, password: SudoPassword | None, file: IO[bytes]) -> bool:
    """Runs a command made with `reading` and writes what it prints into a file. Raises OSError as `send` does."""
    channel.exec_command(line)
    if password:
        authenticate(channel, host, password, QUIET_SECONDS)
    channel.shutdown_write()
    begin, held = f"{MARK}\n".encode(), b""
    while begin not in held and (chunk := _chunk(channel)):
        held += chunk
        if len(held) > Limits.stdout:
            raise TooMuchOutput(host, f"more than {Limits.stdout >> 20} MiB before a file")
    file.write(held.partition(begin)[2])
    while chunk := _chunk(channel):
        file.write(chunk)
    return _succeeds(channel)


def as_bytes(stdin: Any) -> bytes:
    """Standard input as pyinfra takes it (a text, several, or a file), each text ended with a newline."""
    if stdin is None:
        return b""
    texts = stdin.readlines() if hasattr(stdin, "readlines") else stdin
    texts = [texts] if isinstance(texts, str) else texts
    return "".join(text if text.endswith("\n") else f"{text}\n" for text in texts).encode()


class _Output:
    """One stream of a command, cut into lines as they come; `lines` are those of both streams."""

    def __init__(
        self,
        name: str,
        receive: Callable[[int], bytes],
        host: str,
        limits: Limits,
        lines: list[OutputLine],
        heard: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._heard = heard
        self._name, self._receive, self._host, self._limits, self._lines = name, receive, host, limits, lines
        self._most = limits.stdout if name == "stdout" else limits.stderr
        self._bytes, self._rest = 0, bytearray()

    def read(self) -> None:
        """To its end."""
        while chunk := self._receive(CHUNK):
            self.take(chunk)
        if self._rest:
            self._add(self._rest)

    def take(self, chunk: bytes) -> None:
        """What came."""
        self._bytes += len(chunk)
        if self._bytes > self._most:
            stream = "standard output" if self._name == "stdout" else "standard error"
            raise TooMuchOutput(self._host, f"more than {self._most >> 20} MiB on {stream}")
        first, *others = chunk.split(b"\n")
        self._rest += first
        for other in others:
            self._add(self._rest)
            self._rest = bytearray(other)
        if len(self._rest) > self._limits.line:
            raise TooMuchOutput(self._host, f"a line of more than {self._limits.line >> 20} MiB")

    def _add(self, line: bytearray) -> None:
        if len(self._lines) >= self._limits.lines:
            raise TooMuchOutput(self._host, f"more than {self._limits.lines} lines")
        self._lines.append(OutputLine(self._name, line.decode(errors="replace")))
        self._heard(self._lines[-1].line)


def _feed(channel: Any, stdin: bytes) -> None:
    """Sends a command its standard input; a command may end without reading it."""
    try:
        channel.sendall(stdin)
        channel.shutdown_write()
    except OSError:
        if channel.get_transport().is_active():
            return
        raise


def _await_shell(readers: list[Any], begun: Event, seconds: float) -> None:
    """Waits until the login shell has begun the command, or ended without it. Raises ShellSilent."""
    deadline = time.monotonic() + seconds
    while not begun.is_set() and (reading := [reader for reader in readers if not reader.ready()]):
        if (left := deadline - time.monotonic()) <= 0:
            raise ShellSilent
        ended = gevent.wait([begun, *reading], timeout=left, count=1)
        if any(one is not begun and one.value is not None for one in ended):
            return  # an error, which the wait for the end raises


def _wait(channel: Any, readers: list[Any], timeout: float) -> None:
    """Waits until the command has ended. Raises a reader's error as soon as there is one, and TimeoutError."""
    deadline = time.monotonic() + timeout
    for reader in gevent.iwait(readers, timeout=timeout):
        if reader.value is not None:
            raise reader.value
    if not all(reader.ready() for reader in readers):
        raise TimeoutError
    if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
        raise TimeoutError


def _outcome(work: Callable[[], None]) -> Exception | None:
    """Runs a function and returns its result or error: gevent would print the traceback of a greenlet that raises."""
    try:
        work()
    except Exception as error:
        return error
    return None


def _chunk(channel: Any) -> bytes:
    """The next CHUNK of standard output, less at its end."""
    data = b""
    with gevent.Timeout(QUIET_SECONDS, TimeoutError):
        while len(data) < CHUNK and (more := channel.recv(CHUNK - len(data))):
            data += more
    return data


def _succeeds(channel: Any) -> bool:
    with gevent.Timeout(QUIET_SECONDS, TimeoutError):
        while channel.recv(CHUNK):
            pass
        channel.status_event.wait()
    return bool(channel.recv_exit_status() == 0)
