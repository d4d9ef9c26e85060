"""Web servers on an existing socket: one in a lab's network, for a process outside it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rigup.errors import HostFailed

BACKLOG = 128


def listen(listening: socket.socket, address: tuple[str, int]) -> socket.socket:
    """Binds a socket, possibly of another network namespace, and listens on it. Raises HostFailed if it cannot."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        raise HostFailed(f"cannot listen at {address[0]}:{address[1]}: {error.strerror}") from None
    listening.listen(BACKLOG)
    return listening


class ListeningServer(ThreadingHTTPServer):
    """Accepts connections on a socket that already listens."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        super().__init__(listening.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
