"""Single files out of a wheel on a server, by HTTP ranges: a megabyte instead of five hundred."""

from __future__ import annotations

import io
import urllib.parse
import zipfile
from pathlib import Path

import requests

from rigup.cache import cache_folder
from rigup.errors import HostFailed, InputError
from rigup.operations.downloads import fetch, reason
from rigup.operations.package_index import IndexFile

BUFFER = 1 << 17
TIMEOUT_S = 60


class NoRanges(Exception):
    """The server sends whole files only."""


class RangeFile(io.RawIOBase):
    """A read-only, seekable file on a server that answers range requests. Raises NoRanges and requests' errors."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.session = requests.Session()
        self.position = 0
        with self._asked("bytes=0-0") as answer:
            size = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status_code != 206 or not size.isdigit():
                raise NoRanges
            self.size = int(size)

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The position, in bytes."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the position; nothing is asked for."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        self.position = start + offset
        return self.position

    def close(self) -> None:
        """Gives the connection back."""
        self.session.close()
        super().close()

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """One request for the bytes from the position on."""
        if self.position >= self.size:
            return 0
        last = min(self.size, self.position + len(buffer)) - 1
        with self._asked(f"bytes={self.position}-{last}") as answer:
            if answer.status_code != 206:
                raise NoRanges
            content = answer.content
        buffer[: len(content)] = content
        self.position += len(content)
        return len(content)

    def _asked(self, wanted: str) -> requests.Response:
        headers = {"Range": wanted, "Accept-Encoding": "identity"}
        answer = self.session.get(self.url, headers=headers, timeout=TIMEOUT_S, stream=True)
        if not answer.ok:
            answer.close()
        answer.raise_for_status()
        return answer


def open_wheel(wheel: IndexFile) -> zipfile.ZipFile:
    """A wheel where it lies, to read files out of; downloaded whole where its server knows no ranges.

    Raises InputError where it is no wheel or cannot be read, Unreachable, and HostFailed on another sha256.
    """
    address = urllib.parse.urlsplit(wheel.url)
    try:
        if address.scheme == "file":
            return zipfile.ZipFile(urllib.parse.unquote(address.path))
        try:
            return zipfile.ZipFile(io.BufferedReader(RangeFile(wheel.url), BUFFER))  # type: ignore[type-var]
        except NoRanges:
            return zipfile.ZipFile(_whole(wheel))
    except requests.RequestException as error:
        raise InputError(f"{wheel.name}: {reason(error)}", "is this machine online?") from None
    except (zipfile.BadZipFile, OSError):
        raise InputError(f"{wheel.name}: what lies there is no wheel", "is the index sound?") from None


def _whole(wheel: IndexFile) -> Path:
    if wheel.sha256 is None:
        raise HostFailed(f"{wheel.name}: nothing says what its sha256 should be", "lock it first")
    return fetch(lambda: wheel.url, wheel.name, wheel.sha256, cache_folder() / "sources" / wheel.sha256)
