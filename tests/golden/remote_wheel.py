"""Reads single files out of a wheel on the package index, by HTTP ranges: a megabyte instead of five hundred."""

from __future__ import annotations

import io
import urllib.parse
import zipfile

import requests

from rigup.operations.package_index import ACCEPT, file_links, index_url

BUFFER = 1 << 17


class RangeFile(io.RawIOBase):
    """A read-only, seekable file on a server that answers range requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.size = int(self.session.head(url, timeout=60, allow_redirects=True).headers["Content-Length"])
        self.position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = start + offset
        return self.position

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        if self.position >= self.size:
            return 0
        last = min(self.size, self.position + len(buffer)) - 1
        answer = self.session.get(self.url, headers={"Range": f"bytes={self.position}-{last}"}, timeout=60)
        assert answer.status_code == 206, f"the index answers no ranges: HTTP {answer.status_code}"
        buffer[: len(answer.content)] = answer.content
        self.position += len(answer.content)
        return len(answer.content)


def open_wheel(project: str, file_name: str) -> tuple[zipfile.ZipFile, str]:
    """The wheel of that name, and the sha256 that the index states for it ("" where it states none)."""
    page = f"{index_url().rstrip('/')}/{project}/"
    answer = requests.get(page, headers={"Accept": ACCEPT}, timeout=60)
    answer.raise_for_status()
    for link in file_links(answer):
        url, _, fragment = urllib.parse.urljoin(page, link).partition("#")
        if url.endswith(f"/{file_name}"):
            return zipfile.ZipFile(io.BufferedReader(RangeFile(url), BUFFER)), fragment.removeprefix("sha256=")
    raise AssertionError(f"{file_name} is not on the index")
