"""The package proxy of a lab: `python -m rigup.lab.packages.proxy LAB`.

It listens inside the lab and downloads outside. It answers 403 for everything that the lab does not offer (see
`upstream`). It caches content that cannot change (packages by version, lists by hash) on disk, for all labs of this
user, up to a limit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.error
from contextlib import suppress
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rigup.lab.base import image
from rigup.lab.folder import LabFolder, lab_root, make_folder
from rigup.lab.network import addresses
from rigup.lab.network.listening_server import ListeningServer, listen
from rigup.lab.network.network import lab_socket
from rigup.lab.packages import registries
from rigup.lab.packages.upstream import INDEX_PATH, Upstream

UNCHANGING = re.compile(r"\.(deb|whl|tar\.gz|tar\.xz|zip|metadata)$|/by-hash/")
PASSED_ON = ("If-Modified-Since", "If-None-Match", "Range", "User-Agent")
PASSED_BACK = ("Content-Type", "Content-Length", "Content-Range", "Last-Modified", "ETag")
CHUNK = 1 << 16
MOST_KEPT = 64 << 30
"""Bytes of all files together; those that were not asked for longest go first."""
LEAST_FREE = 10 << 30
"""Bytes of the disk that stay free: beyond that files are passed on and not kept."""
LEFT_SECONDS = 3600
"""A part that has not grown for this time belongs to a proxy that has ended; other labs' proxies write here, too."""


class PackageHandler(BaseHTTPRequestHandler):
    """One connection of a machine's apt or pip."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds of silence: a machine that lost its power never closes a connection
    server: PackageServer

    def do_GET(self) -> None:
        """Answers from disk, from outside, or 403."""
        own = f"http://{addresses.hub_address(self.server.number)}:{addresses.PACKAGE_PORT}/"
        target = "/" + self.path.removeprefix(own) if self.path.startswith(own) else self.path
        address = self.server.upstream.address(target)
        if address is None:
            self.answer(403, b"the lab does not offer this\n")
            return
        kept = kept_as(self.server.kept, address)
        if kept is not None and self.send_file(kept):
            return
        on = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        if target.startswith(INDEX_PATH):
            on["Accept"] = "text/html"
        try:
            response = self.server.upstream.open(target, on)
        except urllib.error.HTTPError as error:
            self.answer(error.code, b"" if error.code == 304 else error.read())
            return
        except (urllib.error.URLError, TimeoutError) as error:
            self.answer(502, f"{error}\n".encode())
            return
        # A later failure drops the connection, because the data already sent cannot be withdrawn.
        with response:
            if target.startswith(INDEX_PATH):
                page = self.server.upstream.offered(response.read().decode(), response.url)
                self.answer(200, page.encode(), "text/html; charset=utf-8")
            else:
                self.pass_back(response, kept if response.status == 200 else None)

    def answer(self, status: int, body: bytes, content_type: str = "text/plain") -> None:
        """Sends a short answer."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, path: Path) -> bool:
        """Sends a cached file. Returns False if there is none; another lab's proxy may have removed it."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return False
        with file:
            os.utime(file.fileno())
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile, CHUNK)
        return True

    def pass_back(self, response: HTTPResponse, keep: Path | None) -> None:
        """Passes data on as it arrives; caches it as well once it is complete."""
        self.send_response(response.status)
        for name in PASSED_BACK:
            if name in response.headers:
                self.send_header(name, response.headers[name])
        length = response.headers.get("Content-Length")
        if length is None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        size = 0
        with tempfile.NamedTemporaryFile(dir=self.server.kept, prefix=".", delete=False) as part:
            try:
                while chunk := response.read(CHUNK):
                    size += len(chunk)
                    if keep and shutil.disk_usage(self.server.kept).free < LEAST_FREE:
                        keep = None
                        part.truncate(0)
                    if keep:
                        part.write(chunk)
                    self.wfile.write(chunk)
            finally:
                part.flush()
                if keep and length == str(size):
                    Path(part.name).rename(keep)
                    remove_oldest(self.server.kept)
                else:
                    Path(part.name).unlink()
        if length not in (None, str(size)):
            self.close_connection = True


class PackageServer(ListeningServer):
    """Listens at the lab's own address inside."""

    def __init__(self, name: str) -> None:
        record = LabFolder(name).existing()
        self.number = record.number
        self.kept = make_folder(lab_root() / "packages")
        remove_left_parts(self.kept)
        archives = [source.uri for source in registries.sources(image(record.base) / "etc/apt")]
        self.upstream = Upstream(archives, registries.package_index())
        inside = (addresses.hub_address(self.number), addresses.PACKAGE_PORT)
        super().__init__(listen(lab_socket(name), inside), PackageHandler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs one line: a machine without network or power ends its connections in any way."""
        print(f"{client_address}: {sys.exc_info()[1]!r}", flush=True)


def kept_as(folder: Path, address: str) -> Path | None:
    """Where the content of an address is cached; None if it may change.

    However a machine spells an address, and whatever it asks for behind "?", it is one file.
    """
    parts = urlsplit(address)
    path = re.sub("/+", "/", unquote(parts.path))
    if not UNCHANGING.search(path):
        return None
    return folder / hashlib.sha256(f"{parts.scheme}://{parts.netloc}{path}".encode(errors="replace")).hexdigest()


def remove_oldest(kept: Path) -> None:
    """Removes files that were not asked for longest, until the others have at most MOST_KEPT bytes."""
    found = []
    for path in kept.glob("[!.]*"):
        with suppress(FileNotFoundError):  # another lab's proxy may do the same
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MOST_KEPT:
            return
        path.unlink(missing_ok=True)
        total -= size


def remove_left_parts(kept: Path) -> None:
    """Removes incomplete downloads of proxies that have ended."""
    for part in kept.glob(".*"):
        with suppress(FileNotFoundError):  # another lab's proxy may do the same
            if time.time() - part.stat().st_mtime > LEFT_SECONDS:
                part.unlink()


if __name__ == "__main__":
    PackageServer(sys.argv[1]).serve_forever()
