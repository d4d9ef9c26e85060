"""A stand-in for a container registry: the OCI distribution protocol over plain HTTP, with a token as Docker Hub wants.

It serves what it was given, byte by byte, to clients of any kind: `rigup lock`, podman.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

from rigup.lab.network.listening_server import ListeningServer

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Registry:
    """Repositories with tags, on a socket that listens already, or on a free port of this machine's loopback.

    want_token: whether a token must be fetched first. faults: HTTP statuses that the next requests get, in order.
    """

    def __init__(self, listening: socket.socket | None = None, want_token: bool = True) -> None:
        self.content: dict[str, tuple[str, bytes]] = {}
        self.tags: dict[tuple[str, str], str] = {}
        self.want_token = want_token
        self.faults: list[int] = []
        self.requests: list[str] = []
        listening = listening or _loopback()
        self.address = "http://{}:{}".format(*listening.getsockname()[:2])
        self._server = ListeningServer(listening, _Handler)
        self._server.registry = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, media_type: str, content: bytes) -> dict[str, Any]:
        """Keeps a content; returns its descriptor."""
        digest = digest_of(content)
        self.content[digest] = (media_type, content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def image(self, architecture: str = "amd64", layer: bytes = b"", config: Mapping[str, Any] | None = None) -> str:
        """Keeps an image of one layer (a tar file); returns the digest of its manifest."""
        settings = {
            "architecture": architecture,
            "os": "linux",
            "config": dict(config or {}),
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.add(CONFIG, json.dumps(settings).encode()),
            "layers": [self.add(LAYER, layer)],
        }
        return str(self.add(MANIFEST, json.dumps(manifest).encode())["digest"])

    def index(self, images: Mapping[str, str]) -> str:
        """Keeps an index over images, digest by architecture; returns its digest."""
        entries = [
            {
                "mediaType": MANIFEST,
                "digest": digest,
                "size": len(self.content[digest][1]),
                "platform": {"os": "linux", "architecture": architecture},
            }
            for architecture, digest in images.items()
        ]
        content = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        return str(self.add(INDEX, content)["digest"])

    def tag(self, repository: str, tag: str, digest: str) -> None:
        """Has a tag be this manifest or index."""
        self.tags[repository, tag] = digest


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """The registry's own list takes the place of the standard log."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        registry: Registry = self.server.registry  # type: ignore[attr-defined]
        parts = urllib.parse.urlsplit(self.path)
        registry.requests.append(self.path)
        if registry.faults:
            status = registry.faults.pop(0)
            self.answer(status, b"{}", {"Retry-After": "7"} if status == 429 else {})
        elif parts.path == "/token":
            scope = dict(urllib.parse.parse_qsl(parts.query)).get("scope", "")
            self.answer(200, json.dumps({"token": f"for-{scope}"}).encode())
        elif registry.want_token and not self.may(parts.path):
            realm = f'Bearer realm="{registry.address}/token",service="stand-in",scope="{self.scope(parts.path)}"'
            self.answer(401, _error("UNAUTHORIZED"), {"WWW-Authenticate": realm})
        elif parts.path == "/v2/":
            self.answer(200, b"{}")
        else:
            self.find(registry, parts.path)

    def may(self, path: str) -> bool:
        wanted = "Bearer for-" + ("" if path == "/v2/" else self.scope(path))
        return self.headers.get("Authorization", "").startswith(wanted)

    def scope(self, path: str) -> str:
        return f"repository:{self.split(path)[0]}:pull"

    def split(self, path: str) -> tuple[str, str, str]:
        """Repository, "manifests" or "blobs", and tag or digest."""
        for kind in ("manifests", "blobs"):
            name, found, reference = path.removeprefix("/v2/").partition(f"/{kind}/")
            if found:
                return name, kind, reference
        return "", "", ""

    def find(self, registry: Registry, path: str) -> None:
        repository, kind, reference = self.split(path)
        digest = reference if reference.startswith("sha256:") else registry.tags.get((repository, reference), "")
        known = any(name == repository for name, _ in registry.tags)
        if not known or digest not in registry.content:
            self.answer(404, _error("MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN"))
            return
        media_type, content = registry.content[digest]
        self.answer(200, content, {"Content-Type": media_type, "Docker-Content-Digest": digest})

    def answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _error(code: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()


def _loopback() -> socket.socket:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    return listening
