"""Stands for the /metrics of engines and exporters that a test has not: serves recorded text, and counters that grow.

usage: serve.py PORT=FILE [PORT=FILE ...]; python3's standard library only, since lab machines run it.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TYPE = re.compile(r"# TYPE (\S+) (counter|histogram)")
SAMPLE = re.compile(r"([^{\s]+)(\{.*\})? (\S+)$")
BEGAN = time.monotonic()


def grown(text: str, seconds: float) -> str:
    """The text as it would be so many seconds later: a counter has grown by a tenth of itself each second."""
    growing = {name for name, _ in TYPE.findall(text)}
    lines = []
    for line in text.splitlines():
        found = SAMPLE.fullmatch(line)
        if found and re.sub("_(bucket|sum|count)$", "", found[1]) in growing | {found[1]} & growing:
            line = f"{found[1]}{found[2] or ''} {float(found[3]) * (1 + seconds / 10)}"
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


class Exporter(ThreadingHTTPServer):
    """Serves one file at one port."""

    def __init__(self, port: int, file: str) -> None:
        super().__init__(("0.0.0.0", port), Handler)
        self.text = Path(file).read_text()


class Handler(BaseHTTPRequestHandler):
    server: Exporter

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(grown(self.server.text, time.monotonic() - BEGAN).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


if __name__ == "__main__":
    servers = [Exporter(int(port), file) for port, _, file in (word.partition("=") for word in sys.argv[1:])]
    for server in servers[1:]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    servers[0].serve_forever()
