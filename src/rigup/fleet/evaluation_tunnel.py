"""A door on this machine's loopback to an endpoint on a host's, through the connection that a run has anyway."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import gevent
from gevent.server import StreamServer
from paramiko import ChannelException, SSHException

from rigup.errors import HostFailed, Unreachable

OPEN_SECONDS = 20
CHUNK = 1 << 16
FORBIDDEN = 1


@contextmanager
def tunnel(host: Any, address: str) -> Iterator[str]:
    """The address here of an endpoint there, "http://127.0.0.1:8000" as the host itself would say it.

    Raises HostFailed where the host's SSH server forwards nothing, Unreachable where nothing listens there.
    """
    name, _, port = address.removeprefix("http://").rpartition(":")
    there = (name.strip("[]"), int(port))
    _channel(host, there).close()
    server = StreamServer(("127.0.0.1", 0), lambda own, peer: _serve(host, there, own))
    server.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.stop(timeout=1)


def _channel(host: Any, there: tuple[str, int]) -> Any:
    transport = host.connector.client.get_transport() if host.connector.client else None
    try:
        if transport is None:
            raise EOFError
        return transport.open_channel("direct-tcpip", there, ("127.0.0.1", 0), timeout=OPEN_SECONDS)
    except ChannelException as error:
        if error.code == FORBIDDEN:
            raise HostFailed(
                f"{host.name}: its SSH server forwards no connections", 'it needs "AllowTcpForwarding local"'
            ) from None
        raise Unreachable(
            f"{host.name}: nothing listens on port {there[1]} there", "rigup status says how the service is"
        ) from None
    except (SSHException, EOFError, OSError):
        raise HostFailed(f"{host.name}: connection lost", "run the same command again") from None


def _serve(host: Any, there: tuple[str, int], own: socket.socket) -> None:
    """Passes on everything between one caller here and the endpoint, until one of them is done."""
    try:
        channel = _channel(host, there)
    except (HostFailed, Unreachable):
        own.close()
        return
    asking = gevent.spawn(_pass_on, own, channel)
    _pass_on(channel, own)
    asking.kill()
    for end in (channel, own):
        with suppress(OSError, EOFError):
            end.close()


def _pass_on(source: Any, sink: Any) -> None:
    with suppress(OSError, EOFError, SSHException):
        while data := source.recv(CHUNK):
            sink.sendall(data)
    with suppress(OSError, EOFError, SSHException):
        sink.shutdown(socket.SHUT_WR)
