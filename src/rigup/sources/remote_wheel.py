"""Reads single files of a wheel on a server with HTTP range requests: one megabyte instead of five hundred."""

from __future__ import annotations

import io
import struct
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from remotezip import PartialBuffer, RangeNotSupported, RemoteFetcher, RemoteIOError, RemoteZip, RemoteZipError
from urllib3.exceptions import HTTPError

from rigup.cache import cache_folder
from rigup.errors import HostFailed, InputError
from rigup.sources.bounded_http import time_limit
from rigup.sources.downloads import fetch, reason
from rigup.sources.package_index import IndexFile, index_session

READ_AHEAD = 1 << 17
TIMEOUT_S = 60
READ_S = 300.0
LARGEST_RANGE = 2**26
LARGEST_MEMBER = 2**24
# What zipfile and remotezip raise if the bytes are not a valid wheel.
MALFORMED = (
    zipfile.BadZipFile,
    RemoteZipError,
    HTTPError,
    zlib.error,
    struct.error,
    ValueError,
    TypeError,
    AttributeError,
    RuntimeError,
    EOFError,
    OSError,
)


class Wheel(zipfile.ZipFile):
    """A wheel to read files from. Raises InputError if a file is unreadable or too large for memory."""

    file: IndexFile

    def read(self, name: str | zipfile.ZipInfo, pwd: bytes | None = None) -> bytes:
        """The content of one file. Raises KeyError if the wheel does not contain it."""
        found = self.getinfo(name) if isinstance(name, str) else name
        if found.file_size > LARGEST_MEMBER:
            raise InputError(
                f"{self.file.name}: {found.filename!r} is too large to read",
                "check the package index: it may be serving corrupt files",
            )
        with _named(self.file):
            return super().read(found, pwd)


class _RemoteWheel(Wheel, RemoteZip):
    """A wheel on a server."""

    def __init__(self, url: str) -> None:
        self.session = index_session(LARGEST_RANGE)
        self.session.headers["Accept-Encoding"] = "identity"
        try:
            RemoteZip.__init__(self, url, session=self.session, fetcher=_ReadAhead, timeout=TIMEOUT_S)
        except BaseException:
            self.session.close()
            raise

    def close(self) -> None:
        """Closes the wheel and its connection."""
        super().close()
        self.session.close()


class _ReadAhead(RemoteFetcher):
    """Requests `READ_AHEAD` bytes at once: remotezip alone sends one request for each of thousands of files."""

    start = 0
    window = b""

    def fetch(self, data_range: tuple[int, int | None], stream: bool = False) -> PartialBuffer:
        """The bytes from the first to the last of a range, or the end of the file."""
        first, last = data_range
        if last is None:
            return super().fetch(data_range)
        if first < 0:
            raise RemoteZipError("a position before the start of the file")
        if not self.start <= first <= last < self.start + len(self.window):
            read = super().fetch((first, max(last, first + READ_AHEAD - 1)))
            self.start, self.window = read.tell(), read.read()
        if self.start > first:
            raise RemoteZipError("a different range than requested")
        part = self.window[first - self.start : last - self.start + 1]
        return PartialBuffer(io.BytesIO(part), first, len(part), stream=False)


def open_wheel(wheel: IndexFile) -> Wheel:
    """Opens a wheel at its URL; downloads it whole if the server does not support ranges.

    Raises InputError if the file is not a wheel or cannot be read, Unreachable, and HostFailed if its sha256 is wrong.
    """
    with _named(wheel):
        opened = _opened(wheel)
        opened.file = wheel
        return opened


def _opened(wheel: IndexFile) -> Wheel:
    address = urllib.parse.urlsplit(wheel.url)
    if address.scheme == "file":
        return Wheel(urllib.parse.unquote(address.path))
    try:
        return _RemoteWheel(wheel.url)
    except RangeNotSupported:
        return Wheel(_whole(wheel))


@contextmanager
def _named(wheel: IndexFile) -> Iterator[None]:
    """Turns errors into messages about this wheel, and limits the time to `READ_S`."""
    try:
        with time_limit(READ_S):
            yield
    except MALFORMED as error:
        cause = error.__context__ if isinstance(error, RemoteIOError) else error
        if isinstance(cause, requests.RequestException):
            raise InputError(f"{wheel.name}: {reason(cause)}", "check that this machine is online") from None
        raise InputError(
            f"{wheel.name}: not a valid wheel", "check the package index: it may be serving corrupt files"
        ) from None


def _whole(wheel: IndexFile) -> Path:
    if wheel.sha256 is None:
        raise HostFailed(f"{wheel.name}: no sha256 is known for it", "run rigup lock first")
    return fetch(lambda: wheel.url, wheel.name, wheel.sha256, cache_folder() / "sources" / wheel.sha256)
