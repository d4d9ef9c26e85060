"""A server on loopback that answers every GET with a body as a hostile hub or peer would send it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

BLOCK = bytes(65536)


class HostileServer:
    """Sends `first`, then zeros without end and without saying how many: `bytes_per_second` of them, 0 for all it can.

    sent: bytes so far. It answers a request for a path that `states` has with that, as a peer's state.
    """

    def __init__(self, first: bytes = b"", bytes_per_second: int = 0) -> None:
        self.first, self.bytes_per_second = first, bytes_per_second
        self.states: dict[str, bytes] = {}
        self.sent = 0
        self.asked: list[str] = []
        self.ended = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def end(self) -> None:
        """It is gone."""
        self.ended.set()
        self.socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            path = connection.recv(2**16).split(b" ")[1].decode()
            self.asked.append(path)
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            if path in self.states:
                connection.sendall(self.states[path])
                return
            connection.sendall(self.first)
            while not self.ended.is_set():
                block = BLOCK[: max(1, self.bytes_per_second // 20)] if self.bytes_per_second else BLOCK
                connection.sendall(block)
                self.sent += len(block)
                if self.bytes_per_second:
                    time.sleep(0.05)
