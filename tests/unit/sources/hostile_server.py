"""A server on loopback that sends what a test writes down, byte by byte, and as long as anybody reads it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[str], Iterable[bytes | float]]


@contextmanager
def hostile_server(script: Script) -> Iterator[str]:
    """The address of the server. script: from the request's head to what is sent: bytes, or seconds to wait."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening, script), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def serve(listening: socket.socket, script: Script) -> None:
    """Answers everybody who connects, until the socket is closed."""
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection, script), daemon=True).start()


def _answer(connection: socket.socket, script: Script) -> None:
    with suppress(OSError), connection:
        head = b""
        while b"\r\n\r\n" not in head:
            received = connection.recv(65536)
            if not received:
                return
            head += received
        for part in script(head.decode("latin-1")):
            if isinstance(part, float):
                time.sleep(part)
            else:
                connection.sendall(part)


def head(*lines: str, status: str = "200 OK") -> bytes:
    """The head of an answer."""
    return "\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode()
