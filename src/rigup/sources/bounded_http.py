"""HTTP from the controlling machine, with two limits that requests lacks: the size of a body and the total time.

A timeout of requests only limits the time between two bytes, and requests reads a body of any size. `BoundedSession`
is a requests session with both limits. rigup passes it to every library that takes a session (remotezip, and
huggingface_hub through a transport), so all of them use the same limits, proxies, certificates and .netrc.
"""

from __future__ import annotations

import http.client
import io
import json
import math
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError

from rigup.units import bytes_text

BLOCK = 2**16
MOST_REDIRECTS = 10
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=math.inf)


class BoundExceeded(requests.RequestException):
    """A response exceeded a limit, so a retry cannot help. The text follows the name of the server in a message."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limits the time of all requests made inside, with waits and redirects; a shorter outer limit still applies."""
    token = _DEADLINE.set(min(_DEADLINE.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def require_time() -> None:
    """Raises BoundExceeded if the time limit is over."""
    if seconds_left() <= 0:
        raise BoundExceeded("did not finish its response in time")


def seconds_left() -> float:
    """Seconds until the time limit; infinite without a limit."""
    return _DEADLINE.get() - time.monotonic()


class BoundedSession(requests.Session):
    """Raises BoundExceeded if a decoded body exceeds `most_bytes` or a `time_limit` runs out."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self.max_redirects = MOST_REDIRECTS
        self.mount("https://", _Adapter(most_bytes))
        self.mount("http://", _Adapter(most_bytes))

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Sends as requests does, but reports an expired time limit before any other error."""
        try:
            return super().send(request, **kwargs)
        except BoundExceeded:
            raise
        except requests.RequestException:
            require_time()
            raise
        except (ValueError, HTTPError, http.client.HTTPException) as error:
            # requests does not wrap these errors; a Location header that is not text causes one, for example
            raise requests.ConnectionError(str(error)) from None


def read_json(content: bytes, most_values: int) -> Any:
    """Parses a JSON document. Raises ValueError if it is not JSON, is nested too deep, or has too many values.

    Python reads NaN and Infinity, but they are not JSON.
    """
    if content.count(b",") + content.count(b"[") + content.count(b"{") > most_values:
        raise ValueError("too many values")
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until the time limit, which also applies to header lines that arrive very slowly."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock = sock
        self._raw = raw

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int | None:
        left, timeout = seconds_left(), self._sock.gettimeout()
        if left <= 0:
            raise TimeoutError("time limit reached")
        if left == math.inf or (timeout is not None and timeout <= left):
            return self._raw.readinto(buffer)
        self._sock.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(timeout)


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_DeadlineReader(sock, self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _Response


class _TlsConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _BoundedBody:
    """A urllib3 response that raises BoundExceeded once more than `most_bytes` were read."""

    def __init__(self, raw: Any, most_bytes: int) -> None:
        self._raw = raw
        self._most = self._left = most_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self, amt: int = BLOCK, decode_content: bool | None = None) -> Iterator[bytes]:
        """The body in blocks."""
        for block in self._raw.stream(amt, decode_content):
            yield self._counted(block)

    def read(self, amt: int | None = None, **kwargs: Any) -> bytes:
        """The next `amt` bytes, or with None everything that is left."""
        most = self._left + 1
        return self._counted(self._raw.read(most if amt is None else min(amt, most), **kwargs))

    def _counted(self, block: bytes) -> bytes:
        self._left -= len(block)
        if self._left >= 0 and seconds_left() > 0:
            return block
        self._raw.close()
        require_time()
        raise BoundExceeded(f"sent more than {bytes_text(self._most)}")


class _Adapter(HTTPAdapter):
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        if isinstance(manager, ProxyManager):
            manager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        return manager

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        answer = super().send(*args, **kwargs)
        answer.raw = _BoundedBody(answer.raw, self._most_bytes)
        return answer
