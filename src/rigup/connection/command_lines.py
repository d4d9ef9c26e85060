"""The output of a command on a host, line by line while it runs, however long that takes. Long lines are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gevent
from pyinfra.api.command import QuoteString, StringCommand

from rigup.connection.login_shell import MARK
from rigup.host import Host, uses_sudo
from rigup.operations.primitives import remote

CHUNK = 1 << 16
LONGEST_LINE = 1 << 20
YIELD_SECONDS = 1e-4
"""After each chunk, so that others are read and timers run; gevent's sleep(0) lets timers wait for fifty rounds."""
_MOST_BEFORE = 1 << 20
"""What a login shell may print before the command begins, in bytes."""

Take = Callable[[str], None]


def run_line_by_line(host: Host, words: tuple[str, ...], out: Take, err: Take, root: bool = True) -> int:
    """Runs a command and passes on the lines of both of its streams as they come. Returns its exit status.

    Where the caller leaves early, the command's pipes are closed: it ends when it prints next.
    root: as root, otherwise as the user that SSH logs in as.
    Raises one of `remote.CONNECTION_ERRORS` when the connection is lost.
    """
    command = StringCommand(*(QuoteString(word) for word in words))
    channel, begun = host.connector.stream(command, _sudo=root and uses_sudo(host))
    complaints = gevent.spawn(_complaints, channel, begun, err)
    try:
        _each_line(channel, channel.recv, b"", out)
        complaints.join()
        status = channel.recv_exit_status()
    finally:
        with suppress(*remote.CONNECTION_ERRORS):
            channel.close()
        complaints.kill()
    if status < 0:  # no status came, so the connection ended before the command
        raise ConnectionResetError("the connection ended before the command did")
    return int(status)


def _complaints(channel: Any, begun: bytes, take: Take) -> None:
    """Standard error; a lost connection is told of by the other stream, since gevent would print a traceback here."""
    with suppress(*remote.CONNECTION_ERRORS):
        _each_line(channel, channel.recv_stderr, begun, take)


def _each_line(channel: Any, receive: Callable[[int], bytes], begun: bytes, take: Take) -> None:
    for line in _lines(_chunks(channel, receive, begun)):
        take(line.decode(errors="replace"))


def _chunks(channel: Any, receive: Callable[[int], bytes], begun: bytes) -> Iterator[bytes]:
    """What comes after the login shell's own output. A channel that is silent is asked whether it still lives."""
    mark, held, began = f"{MARK}\n".encode(), begun, False
    while True:
        if not began and mark in held:
            held, began = held.partition(mark)[2], True
        if began and held:
            yield held
            held = b""
        gevent.sleep(YIELD_SECONDS)
        try:
            chunk = receive(CHUNK)
        except TimeoutError:
            if not channel.get_transport().is_active():
                raise ConnectionResetError("the connection is lost") from None
            continue
        if not chunk:
            if not began:  # it never began: what the shell said is the reason
                yield held
            return
        held = (held + chunk)[-_MOST_BEFORE:] if not began else chunk


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        while len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE]
            rest = rest[LONGEST_LINE:]
    if rest:
        yield rest
