"""The protocol of the hub stand-in: the requests of huggingface_hub and curl to a hub and to its CDN."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
import time
import urllib.parse
from abc import ABC, abstractmethod
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, TextIO

from rigup.lab.hub import ollama
from rigup.lab.hub.content import Content, ServedFile, ServedRepository
from rigup.lab.hub.faults import Control, Faults
from rigup.lab.network.listening_server import ListeningServer

BLOCK = 2**16
RANGE = re.compile(r"bytes=(?=\d|-\d)(?P<start>\d*)-(?P<end>\d*)")
"""The first range of a range request."""


class RequestLog:
    """One JSON line per request. It records whether a token was sent, never the token."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, entry: dict[str, Any]) -> None:
        """Appends one entry as a complete line."""
        with self._lock:
            self._file.write(json.dumps(entry) + "\n")


class HubServer(ListeningServer):
    """One address of the stand-in: the hub, or its CDN."""

    def __init__(self, listening: socket.socket, content: Content, control: Control, log: RequestLog) -> None:
        handler = CdnHandler if isinstance(self, CdnServer) else HubHandler
        super().__init__(listening, handler)
        self.content, self.control, self.log = content, control, log
        self.cdn_url = ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect; logs any other error as a fault of the stand-in."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class CdnServer(HubServer):
    """The host that serves large files."""


class Handler(BaseHTTPRequestHandler, ABC):
    """The common part of hub and CDN: log, faults, ranges."""

    protocol_version = "HTTP/1.1"
    server_version = "rigup-lab-hub"
    disable_nagle_algorithm = True
    server: HubServer

    def log_message(self, format: str, *arguments: Any) -> None:
        """Disabled: the request log replaces the standard one."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Answers one request, or applies a fault."""
        faults = self.server.control.faults()
        time.sleep(faults.latency_s)
        if self.server.control.take("request", faults.fail_first):
            wait = {} if faults.retry_after_s is None else {"Retry-After": faults.retry_after_s}
            self.refuse(faults.fail_status, "Fault", "simulated fault", wait)
        else:
            path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
            self.answer([part for part in path.split("/") if part], faults)

    @abstractmethod
    def answer(self, parts: list[str], faults: Faults) -> None:
        """Answers a request for a path."""

    def reply(self, status: int, headers: dict[str, Any], body: bytes = b"") -> None:
        """Sends a short answer."""
        self.note(status, len(body))
        self.head(status, {"Content-Length": len(body), **headers})
        if self.command != "HEAD":
            self.wfile.write(body)

    def head(self, status: int, headers: dict[str, Any]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def json(self, content: Any) -> None:
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def refuse(self, status: int, code: str, message: str, headers: dict[str, Any] | None = None) -> None:
        """Sends an error in the hub's format: a code and a message in headers, so that HEAD requests get them, too."""
        body = json.dumps({"error": message}).encode()
        self.reply(status, {"X-Error-Code": code, "X-Error-Message": message, **(headers or {})}, body)

    def note(self, status: int, count: int) -> None:
        """Logs the request."""
        entry = {"host": self.headers.get("Host"), "method": self.command, "path": self.path.split("?")[0]}
        more = {"range": self.headers.get("Range"), "authorization": "Authorization" in self.headers}
        self.server.log.write({"time": round(time.time(), 3), **entry, **more, "status": status, "bytes": count})

    def send_content(self, file: ServedFile, headers: dict[str, Any], faults: Faults) -> None:
        """Sends the bytes of a file, all or the requested range, subject to the faults."""
        first, last = 0, file.size - 1
        wanted = None if faults.ignore_range else self.headers.get("Range")
        # A server ignores a range that it cannot read (RFC 9110, 14.2).
        if wanted and (match := RANGE.match(wanted)):
            start, end = match["start"], match["end"]
            first, last = (int(start), int(end or last)) if start else (max(0, file.size - int(end)), last)
            last = min(last, file.size - 1)
            if first >= file.size:
                return self.reply(416, {"Content-Range": f"bytes */{file.size}"})
            headers = {**headers, "Content-Range": f"bytes {first}-{last}/{file.size}"}
        status = 206 if "Content-Range" in headers else 200
        modified = formatdate(file.location.stat().st_mtime, usegmt=True)
        self.head(
            status, {"Content-Length": last - first + 1, "Accept-Ranges": "bytes", "Last-Modified": modified, **headers}
        )
        if self.command == "GET":
            self.send_body(file, first, last + 1 - first, status, faults)
        else:
            self.note(status, 0)

    def send_body(self, file: ServedFile, first: int, count: int, status: int, faults: Faults) -> None:
        """Sends `count` bytes from `first`, or fewer because of a fault. A new pace applies from the next block."""
        key, control = str(file.location), self.server.control
        limit = count
        if faults.drop_after_bytes is not None and control.take(f"drop {key}", faults.drop_times):
            limit = min(count, faults.drop_after_bytes)
        flipped = first + limit // 2 if control.take(f"corrupt {key}", faults.corrupt_times) else None
        sent, due = 0, time.monotonic()
        try:
            with file.location.open("rb") as source:
                source.seek(first)
                while sent < limit:
                    rate = control.faults().bytes_per_second
                    block = min(BLOCK, max(1, rate // 10)) if rate else BLOCK
                    data = altered(source.read(min(block, limit - sent)), first + sent, flipped)
                    due = due + len(data) / rate if rate else time.monotonic()
                    time.sleep(max(0.0, due - time.monotonic()))
                    if sent + len(data) == count:
                        # before the last byte, so that a client that has all of it finds this in the log
                        self.note(status, count)
                    self.wfile.write(data)
                    sent += len(data)
        finally:
            if sent < count or not count:
                self.note(status, sent)
        if sent < count:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


def altered(data: bytes, position: int, flipped: int | None) -> bytes:
    """The data at a position, with one bit of the byte at `flipped` changed if it is part of the data."""
    if flipped is None or not position <= flipped < position + len(data):
        return data
    index = flipped - position
    return data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]


class CdnHandler(Handler):
    """The storage behind the hub: accepts signed addresses, and rejects tokens like the real one."""

    def answer(self, parts: list[str], faults: Faults) -> None:
        file = self.server.content.stored_apart(parts[1]) if parts[:1] == ["cdn"] and len(parts) == 2 else None
        if "Authorization" in self.headers:
            self.refuse(400, "InvalidArgument", "Only one auth mechanism allowed")
        elif file is None or "Signature=" not in self.path:
            self.refuse(403, "AccessDenied", "Access denied")
        else:
            self.send_content(file, {"ETag": f'"{file.etag}"', "Content-Type": "application/octet-stream"}, faults)


class HubHandler(Handler):
    """The hub: serves revision and tree as JSON, large files by redirects to the CDN, and small ones itself."""

    def answer(self, parts: list[str], faults: Faults) -> None:
        if parts[:1] == ["v2"] and len(parts) == 5:
            return self.answer_ollama("/".join(parts[1:3]), parts[3], parts[4], faults)
        model_api = parts[:2] == ["api", "models"] and len(parts) >= 4
        name, rest = ("/".join(parts[2:4]), parts[4:]) if model_api else ("/".join(parts[:2]), parts[2:])
        if faults.token and self.headers.get("Authorization") != f"Bearer {faults.token}":
            return self.refuse(401, "GatedRepo", f"Access to model {name} is restricted")
        if faults.gated:
            return self.refuse(403, "GatedRepo", f"Access to model {name} is restricted and you are not in the list")
        repository = self.server.content.repository(name)
        if repository is None:
            return self.refuse(404, "RepoNotFound", "Repository not found")
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in ("main", repository.commit):
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if model_api and rest[:1] in ([], ["revision"]):
            self.json(describe(repository))
        elif model_api and rest[:1] == ["tree"]:
            self.json([tree_entry(file) for file in repository.files.values()])
        elif not model_api and rest[:1] == ["resolve"] and len(rest) > 2:
            self.resolve(repository, "/".join(rest[2:]), faults)
        else:
            self.refuse(404, "NotFound", self.path)

    def answer_ollama(self, name: str, kind: str, reference: str, faults: Faults) -> None:
        """Answers as Ollama's registry, which knows no tokens: a manifest, or a redirect to a file."""
        repository = self.server.content.repository(name)
        found: bytes | ServedFile | None = None
        if repository is not None:
            found = (
                ollama.manifest(repository, reference) if kind == "manifests" else ollama.blob(repository, reference)
            )
        if faults.gated:
            self.refuse(401, "UNAUTHORIZED", "unauthorized")
        elif found is None:
            self.refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")
        elif isinstance(found, bytes):
            self.reply(200, {"Content-Type": ollama.MANIFEST if kind == "manifests" else "text/plain"}, found)
        elif found.lfs:
            address = f"{self.server.cdn_url}/cdn/{found.sha256}?Expires=4102444800&Signature=stand-in"
            self.reply(307, {"Location": address})
        else:
            self.send_content(found, {"Content-Type": "application/octet-stream"}, faults)

    def resolve(self, repository: ServedRepository, path: str, faults: Faults) -> None:
        """Answers a request for a file by name: headers describe it, and a redirect leads to separate storage."""
        file = repository.files.get(path)
        if file is None:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": repository.commit, "ETag": f'"{file.etag}"'}
        if not file.lfs:
            return self.send_content(file, {**headers, "Content-Type": "application/octet-stream"}, faults)
        linked = {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": file.size}
        address = f"{self.server.cdn_url}/cdn/{file.sha256}?Expires=4102444800&Signature=stand-in"
        self.reply(302, {**headers, **linked, "Location": address})


def describe(repository: ServedRepository) -> dict[str, Any]:
    """The hub's description of a model at a revision."""
    moment = "2026-01-01T00:00:00.000Z"
    identity = {"_id": "0", "id": repository.name, "modelId": repository.name, "sha": repository.commit}
    state = {"private": False, "gated": False, "disabled": False, "tags": [], "downloads": 0, "likes": 0}
    siblings = [{"rfilename": path} for path in repository.files]
    return {**identity, **state, "lastModified": moment, "createdAt": moment, "siblings": siblings}


def tree_entry(file: ServedFile) -> dict[str, Any]:
    """One line of a repository's listing."""
    entry = {"type": "file", "oid": file.oid, "size": file.size, "path": file.path}
    lfs = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    return {**entry, "lfs": lfs} if file.lfs else entry


def serve(hub: HubServer, cdn: CdnServer) -> None:
    """Serves both addresses until the process ends."""
    address = cdn.socket.getsockname()
    hub.cdn_url = f"http://{address[0]}:{address[1]}"
    threading.Thread(target=cdn.serve_forever, daemon=True).start()
    hub.serve_forever()
