"""A package index on loopback with tiny wheels made on the spot, named as real ones are; other indices below it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from rigup.sources import package_index, uv
from tests.serving import serving
from tests.unit.sources.local_uv import local_uv


def wheel(name: str, *requires: str, members: dict[str, bytes] | None = None) -> bytes:
    """A wheel of that file name, with requirements and members; always the same bytes."""
    project, version, _ = name.split("-", 2)
    made, info = io.BytesIO(), f"{project}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {project}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    told = {f"{info}/METADATA": "\n".join(lines).encode() + b"\n\n", f"{info}/WHEEL": b"Wheel-Version: 1.0\n"}
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in {**(members or {}), **told, f"{info}/RECORD": b""}.items():
            packed.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)
    return made.getvalue()


class StandInIndex(ThreadingHTTPServer):
    """`files`: by index ("simple" is pip's), then by file name. unhashed: indices that state no sha256.
    yanked: files that their makers took back. sizes: by file; an index in JSON states them, one in HTML states none.
    dates: when files were uploaded, which an index in JSON states too. lengths: whether the server states the length of
    a file that it is asked about.

    broken: projects whose page answers with this status. ranges: whether files are served in parts.
    `asked`: path and Range of every request.
    """

    daemon_threads = True
    ranges = lengths = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, dict[str, bytes]] = {"simple": {}}
        self.unhashed: set[str] = set()
        self.yanked: set[str] = set()
        self.sizes: dict[str, int] = {}
        self.dates: dict[str, str] = {}
        self.broken: dict[str, int] = {}
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def hold(self, name: str, *requires: str, index: str = "simple", members: dict[str, bytes] | None = None) -> str:
        """Puts a file there; returns its sha256. What is not a wheel is some bytes."""
        content = wheel(name, *requires, members=members) if name.endswith(".whl") else name.encode()
        self.files.setdefault(index, {})[name] = content
        return hashlib.sha256(content).hexdigest()


def settings_without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads pip's settings from the environment alone: each start of pip takes half a second."""
    for module in (package_index, uv):
        monkeypatch.setattr(module, "pip_settings", _variables_of_pip)


def _variables_of_pip() -> dict[str, str]:
    return {k[4:].lower().replace("_", "-"): value for k, value in os.environ.items() if k.startswith("PIP_")}


@contextmanager
def index_of_pip(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[StandInIndex]:
    """An empty index that pip, and so uv, is set up for in place of this machine's, with a new cache."""
    local_uv()  # comes from this machine's index
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    settings_without_pip(monkeypatch)
    with serving(StandInIndex()) as index:
        monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        yield index


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandInIndex

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        index, _, rest = unquote(self.path).strip("/").partition("/")
        files = self.server.files.get(index, {})
        if rest.startswith("files/") and rest[6:] in files:
            self.send_file(files[rest[6:]], with_body)
            return
        status = self.server.broken.get(rest, 200)
        names = [name for name in files if name.split("-")[0].replace("_", "-").lower() == rest]
        kind = "application/vnd.pypi.simple.v1+json" if self.server.sizes else "text/html"
        body = (self.in_json(index, rest, names) if self.server.sizes else self.in_html(index, names)).encode()
        self.send_response(status if names or status != 200 else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if with_body else b"")

    def in_html(self, index: str, names: list[str]) -> str:
        return f"<!DOCTYPE html><html><body>{''.join(self.link(index, name) for name in names)}</body></html>"

    def in_json(self, index: str, project: str, names: list[str]) -> str:
        files = [
            {
                "filename": name,
                "url": f"/{index}/files/{name}",
                "hashes": {"sha256": hashlib.sha256(self.server.files[index][name]).hexdigest()},
                "size": self.server.sizes[name],
                **({"upload-time": self.server.dates[name]} if name in self.server.dates else {}),
            }
            for name in names
        ]
        versions = sorted({name.split("-")[1] for name in names})
        return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": files, "versions": versions})

    def link(self, index: str, name: str) -> str:
        sha256 = hashlib.sha256(self.server.files[index][name]).hexdigest()
        stated = "" if index in self.server.unhashed else f"#sha256={sha256}"
        gone = ' data-yanked="broken"' if name in self.server.yanked else ""
        return f'<a href="/{index}/files/{name}{stated}"{gone}>{name}</a>'

    def send_file(self, content: bytes, with_body: bool) -> None:
        first, last, status = 0, len(content) - 1, 200
        wanted = self.headers.get("Range", "")
        if self.server.ranges and wanted.startswith("bytes="):
            start, _, end = wanted[6:].partition("-")
            first, last = (int(start), int(end or last)) if start else (max(0, len(content) - int(end)), last)
            last, status = min(last, len(content) - 1), 206
        part = content[first : last + 1]
        self.send_response(status)
        if self.server.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        if with_body or self.server.lengths:
            self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part if with_body else b"")
