"""A hub whose answers a test writes down, for what the lab's stand-in never does: pages, Retry-After, nonsense."""

from __future__ import annotations

import hashlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REPO = "org/model"
COMMIT = "c0ffee" + "0" * 34


class ReplayedHub(ThreadingHTTPServer):
    """`answers`: by path and query, a list of (status, headers, body); the last one is given again and again.

    `asked`: (path, Authorization) of every request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, list[tuple[int, dict[str, str], bytes]]] = {}
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def says(self, path: str, body: Any = b"", status: int = 200, **headers: str) -> None:
        """Adds an answer for a path; what is not bytes is sent as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.setdefault(path, []).append((status, named, content))

    def revision(self, repo: str = REPO, revision: str = "main", commit: str = COMMIT) -> None:
        self.says(f"/api/models/{repo}/revision/{revision}", {"id": repo, "sha": commit})

    def tree(self, entries: list[dict[str, Any]], repo: str = REPO, commit: str = COMMIT) -> None:
        self.says(f"/api/models/{repo}/tree/{commit}?recursive=true&expand=false", entries)

    def small_file(self, path: str, content: bytes, repo: str = REPO, commit: str = COMMIT) -> dict[str, Any]:
        """Serves a file that is not stored apart, and returns its line of the listing."""
        self.says(f"/{repo}/resolve/{commit}/{path}", content)
        return listed(path, content)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ReplayedHub

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        answers = self.server.answers.get(self.path, [(404, {"X-Error-Code": "RepoNotFound"}, b"{}")])
        status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def listed(path: str, content: bytes) -> dict[str, Any]:
    """A line of the listing for a file in git itself: the blob id, no sha256."""
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    return {"type": "file", "oid": blob, "size": len(content), "path": path}


def stored_apart(path: str, size: int, sha256: str = "a" * 64) -> dict[str, Any]:
    """A line of the listing for a large file."""
    lfs = {"oid": sha256, "size": size, "pointerSize": 134}
    return {"type": "file", "oid": "b" * 40, "size": size, "lfs": lfs, "path": path}
