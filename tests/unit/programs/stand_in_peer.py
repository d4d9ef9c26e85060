"""Stands in for a peer's nginx: serves FOLDER/files and FOLDER/state with ranges, and fails on request."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class StandInPeer(ThreadingHTTPServer):
    """`faults` may hold: corrupt, excess, busy (so many answers 503), drop (closes after half), redirect, forbidden."""

    daemon_threads = True

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        super().__init__((address, 0), Handler)
        self.folder = folder
        self.faults: dict[str, int] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def files_asked(self) -> list[dict[str, str]]:
        """The headers of every request for a file."""
        return [headers for path, headers in self.asked if path.startswith("/files/")]

    def take(self, fault: str) -> bool:
        """Whether a fault is on; it is so many times."""
        left = self.faults.get(fault, 0)
        self.faults[fault] = left - 1
        return left > 0

    def end(self) -> None:
        """It is gone."""
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is not news."""


class Handler(BaseHTTPRequestHandler):
    server: StandInPeer

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        server, path = self.server, self.server.folder / self.path[1:]
        server.asked.append((self.path, dict(self.headers)))
        if not path.is_file():
            self.send_error(404)
        elif self.path.startswith("/state/"):
            self.answer(200, path.read_bytes())
        elif server.take("busy"):
            self.send_error(503)
        elif server.take("forbidden"):
            self.send_error(403)
        elif server.take("redirect"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{server.port}/elsewhere")
            self.end_headers()
        else:
            self.send_file(path.read_bytes())

    def send_file(self, content: bytes) -> None:
        wanted = self.headers.get("Range", "")
        first = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        headers = {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"} if wanted else {}
        if self.server.take("corrupt"):
            content = content[:-1] + bytes([content[-1] ^ 1])
        if self.server.take("excess"):
            self.answer(200, content + bytes(2_000_000), length=False)
        elif self.server.take("drop"):
            self.answer(206 if wanted else 200, content[first:], headers, cut=len(content[first:]) // 2)
        else:
            self.answer(206 if wanted else 200, content[first:], headers)

    def answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None, length: bool = True, cut: int = 0
    ) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} if length else {}).items():
            self.send_header(name, value)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:cut] if cut else body)
        if cut:
            self.connection.shutdown(socket.SHUT_RDWR)
