"""An endpoint's address, and what comes back from it: HTTP/1.1 and server-sent events, taken apart as bytes arrive.

Python 3.10 standard library only, since it runs on hosts too.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MOST_HEAD = 1 << 16


class Unusable(Exception):
    """Raised when an endpoint cannot be measured as it was asked: a message, a hint, and of what kind it is.

    kind: "input" (what the user wrote), "unreachable" or "failed".
    """

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.hint = kind, message, hint


@dataclass(frozen=True)
class Target:
    """Where requests go. prefix: the path before /v1. key: never shown."""

    host: str
    port: int
    prefix: str = ""
    key: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, key: str | None) -> Target:
        """From an address with or without /v1 at its end. Raises Unusable for what is not one.

        What may be a secret in it is not said again: results, logs and lists of processes have the address.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts, port = urlsplit(""), 0
        if "@" in url or "?" in url or "#" in url:
            said = "the address of an endpoint has neither a user nor a query"
            raise Unusable("input", said, "a key is read from a file: --api-key-file")
        if parts.scheme not in ("http", "https") or not parts.hostname or not port:
            raise Unusable("input", f'"{url}" is not the address of an endpoint', "like http://127.0.0.1:8000")
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port, prefix, key, ssl.create_default_context() if parts.scheme == "https" else None)

    @property
    def url(self) -> str:
        """The address as a user would write it."""
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.prefix}"

    @property
    def netloc(self) -> str:
        """Host and port, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def head(self, path: str, length: int, name: str = "") -> bytes:
        """The head of a request with a JSON body of this many bytes; 0 is a GET. name: tells requests apart."""
        lines = [f"{'POST' if length else 'GET'} {self.prefix}{path} HTTP/1.1", f"Host: {self.netloc}"]
        lines += ["Content-Type: application/json", f"Content-Length: {length}"] if length else []
        lines += [f"Authorization: Bearer {self.key}"] if self.key else []
        lines += [f"X-Request-Id: {name}"] if name else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def addresses(self) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
        """What the host's name stands for. Raises Unusable where it stands for nothing."""
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError:
            raise Unusable(
                "unreachable", f"{self.url}: the name {self.host} is not known", "is it spelt right?"
            ) from None
        return [(family, address) for family, _, _, _, address in found]


class Response:
    """One response. `ended` once it is whole; `reusable` where its connection may carry another one.

    body: all of it, where it is not an event stream.
    """

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.ended = self.reusable = False
        self._streams = self._chunked = False
        self._left: int | None = None
        self._raw = self._text = b""

    @property
    def begun(self) -> bool:
        """Whether anything has come."""
        return bool(self.status or self._raw)

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what arrived, and returns the data of the events that are whole now. Raises ValueError for no HTTP."""
        raw = self._raw + data if self._raw else data
        if not self.status:
            head, found, rest = raw.partition(b"\r\n\r\n")
            if not found:
                if len(raw) > MOST_HEAD or not raw.startswith(b"HTTP/"[: len(raw)]):
                    raise ValueError("what came back is not HTTP")
                self._raw = raw
                return []
            self._begin(head)
            self._raw, raw = b"", rest
        payload = self._dechunked(raw) if self._chunked else self._plain(raw)
        if self._streams:
            return self._events(payload)
        self.body += payload
        return []

    def close(self) -> None:
        """The other side has closed the connection: the end, where nothing else says where that is."""
        self.reusable = False
        if self.status and not self._chunked and self._left is None:
            self.ended = True

    def _begin(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._streams = headers.get("content-type", "").startswith("text/event-stream")
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if not self._chunked and "content-length" in headers:
            self._left = int(headers["content-length"])
            self.ended = not self._left
        self.reusable = headers.get("connection", "").lower() != "close" and first.startswith("HTTP/1.1")

    def _dechunked(self, raw: bytes) -> bytes:
        parts, at = [], 0
        while (end := raw.find(b"\r\n", at)) >= 0:
            size = int(raw[at:end].partition(b";")[0], 16)
            begin = end + 2
            if not size:
                last = raw.find(b"\r\n\r\n", end)
                self.ended = last >= 0
                at = len(raw) if self.ended else at
                break
            if len(raw) < begin + size + 2:
                break
            parts.append(raw[begin : begin + size])
            at = begin + size + 2
        self._raw = raw[at:]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _plain(self, raw: bytes) -> bytes:
        if self._left is not None:
            self._left -= len(raw)
            self.ended = self._left <= 0
        return raw

    def _events(self, payload: bytes) -> list[bytes]:
        text = self._text + payload if self._text else payload
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *whole, self._text = text.split(b"\n\n")
        return [data for event in whole if (data := _data(event))]


def _data(event: bytes) -> bytes:
    """What an event carries; b"" for a comment, which servers send to keep a connection open."""
    if event.startswith(b"data:") and b"\n" not in event:
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
