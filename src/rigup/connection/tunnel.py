"""A door on this machine's loopback to an endpoint on a host's, through the connection that a run has anyway.

What goes through it carries the API key. So for every connection the host is asked first whether it leads to the
service's own unit, and nothing is passed on where it does not (`programs/listeners.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent.lock import Semaphore
from gevent.server import StreamServer
from paramiko import ChannelException, SSHException
from pyinfra.api.command import QuoteString, StringCommand

from rigup.connection.login_shell import MARK
from rigup.errors import HostFailed, HostUnreachable, RigupError
from rigup.host import Host, uses_sudo
from rigup.operations.primitives import remote
from rigup.programs import program_file

OPEN_SECONDS = 20
GUARD_SECONDS = 30
CHUNK = 1 << 16
MOST_NOISE = 1 << 20
FORBIDDEN = 1
OURS, SILENT = "ok", "the host does not report which service owns the port"


class OpenTunnel:
    """One that stands open. url: of the endpoint, as seen from here. refusal: why something was not let through."""

    def __init__(self, host: Host, address: str, unit: str, where: str, ports: Iterable[int] = ()) -> None:
        """ports: of this machine, the first of which that is free is taken; any if none is."""
        self._scheme, _, there = address.partition("://")
        name, _, port = there.rpartition(":")
        self._host, self._there, self._where = host, (name.strip("[]"), int(port)), where
        self._unit = unit
        self.refusal = ""
        _channel(host, self._there).close()
        self._guard = _PortGuard(host, unit, self._there)
        self._listener = _listener(ports)
        self._server = StreamServer(self._listener, self._serve)

    def __enter__(self) -> OpenTunnel:
        if self._guard.first != OURS:
            self.refusal = self._guard.first
            self._guard.close()
            self.check()
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(timeout=1)
        self._guard.close()

    @property
    def url(self) -> str:
        """What to ask in place of the endpoint."""
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port of this machine."""
        return int(self._listener.getsockname()[1])

    @property
    def stands(self) -> bool:
        """Whether the connection that it leads through still stands."""
        return remote.is_open(self._host)

    def check(self) -> None:
        """Raises HostFailed where something was not let through."""
        if self.refusal:
            raise HostFailed(f"{self._where}: {self.refusal}", "check the service: rigup status")

    def _connected(self) -> tuple[Any, str]:
        """A connection to the endpoint, and whether it leads to the unit: OURS, or why not."""
        return _channel(self._host, self._there), self._guard.ask()

    def _is_ours_again(self) -> bool:
        """Asks again whose the port is: a service that has restarted listens with a new socket."""
        guard = _PortGuard(self._host, self._unit, self._there)
        if guard.first != OURS:
            guard.close()
            return False
        self._guard.close()
        self._guard = guard
        return True

    def _serve(self, own: socket.socket, _: object) -> None:
        """Passes on everything between one caller here and the endpoint, until one of them is done."""
        try:
            channel, said = self._connected()
            if said != OURS and self._is_ours_again():
                channel.close()
                channel, said = self._connected()
        except (HostFailed, HostUnreachable):
            own.close()
            return
        if said == OURS:
            asking = gevent.spawn(_pass_on, own, channel)
            _pass_on(channel, own)
            asking.kill()
        else:
            self.refusal = said
        for end in (channel, own):
            with suppress(OSError, EOFError):
                end.close()


@contextmanager
def tunnel(host: Host, address: str, unit: str, where: str) -> Iterator[OpenTunnel]:
    """The way from here to an endpoint there, "http://127.0.0.1:8000" as the host itself would say it.

    unit: to which it must belong. where: in front of messages. Raises HostFailed where the host's SSH server forwards
    nothing, or something was not let through; HostUnreachable where nothing listens there.
    """
    with OpenTunnel(host, address, unit, where) as door:
        try:
            yield door
        except RigupError:
            door.check()
            raise


class _PortGuard:
    """The program on the host that says whose the port is. first: what it said before any connection."""

    def __init__(self, host: Host, unit: str, there: tuple[str, int]) -> None:
        text = program_file("listeners.py").read_text()
        words = ("python3", "-I", "-c", text, unit, there[0], str(there[1]))
        self._lock, self._held = Semaphore(), b""
        try:
            self._channel = host.connector.start(StringCommand(*map(QuoteString, words)), "", _sudo=uses_sudo(host))
        except remote.CONNECTION_ERRORS:
            raise HostFailed(f"{host.name}: connection lost", "run the same command again") from None
        self._channel.settimeout(GUARD_SECONDS)
        while not self._line().endswith((MARK, SILENT)):
            pass
        self.first = self._line()

    def ask(self) -> str:
        """Whether a connection that was just made leads to the unit: OURS, or why not."""
        with self._lock:
            try:
                self._channel.sendall(b"\n")
            except remote.CONNECTION_ERRORS:
                return "connection lost"
            return self._line()

    def close(self) -> None:
        """Ends it."""
        with suppress(*remote.CONNECTION_ERRORS):
            self._channel.close()

    def _line(self) -> str:
        """The next line that it says; SILENT where it has ended, or says too much."""
        while b"\n" not in self._held:
            try:
                data = self._channel.recv(CHUNK)
            except remote.CONNECTION_ERRORS:
                data = b""
            self._held += data
            if not data or len(self._held) > MOST_NOISE:
                return SILENT
        line, _, self._held = self._held.partition(b"\n")
        return "".join(c for c in line.decode(errors="replace")[:500] if c.isprintable())


def _listener(ports: Iterable[int]) -> socket.socket:
    for port in ports:
        with suppress(OSError):  # taken, or not this user's to take
            return socket.create_server(("127.0.0.1", port))
    return socket.create_server(("127.0.0.1", 0))


def _channel(host: Host, there: tuple[str, int]) -> Any:
    transport = host.connector.client.get_transport() if host.connector.client else None
    try:
        if transport is None:
            raise EOFError
        return transport.open_channel("direct-tcpip", there, ("127.0.0.1", 0), timeout=OPEN_SECONDS)
    except ChannelException as error:
        if error.code == FORBIDDEN:
            raise HostFailed(
                f"{host.name}: its SSH server does not forward connections",
                'set "AllowTcpForwarding local" in its sshd_config',
            ) from None
        raise HostUnreachable(
            f"{host.name}: nothing listens on port {there[1]}", "check the service: rigup status"
        ) from None
    except (SSHException, EOFError, OSError):
        raise HostFailed(f"{host.name}: connection lost", "run the same command again") from None


def _pass_on(source: Any, sink: Any) -> None:
    with suppress(OSError, EOFError, SSHException):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    with suppress(OSError, EOFError, SSHException):
        sink.shutdown(socket.SHUT_WR)
