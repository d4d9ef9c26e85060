"""Parses HTTP/1.1 responses and server-sent events incrementally and within bounds.

Used by every program that talks to an endpoint. http.client blocks on one connection at a time and limits neither
time nor size; a benchmark reads thousands of connections in one thread.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, NoReturn

CHUNK = 1 << 18
MOST_HEAD = 1 << 16
MOST_BODY = 1 << 20
MOST_EVENT = 1 << 18
MOST_DIGITS = 15
LEAST_STATUS, MOST_STATUS = 100, 599
INTERIM_STATUSES = range(100, 200)
BODILESS_STATUSES = (204, 304)
# with many small chunks, a body may be this many times longer than its payload
MOST_FRAMING = 16
HEX = frozenset(b"0123456789abcdefABCDEF")


class Response:
    """One response. `ended`: it is complete; `reusable`: its connection may carry another one.

    body: complete unless the response is an event stream. most: maximum bytes of the body, or of the whole stream.
    """

    def __init__(self, most: int = MOST_BODY) -> None:
        self.status = 0
        self.ended = self.reusable = False
        self._most = most
        self._body = bytearray()
        self._streams = self._chunked = False
        self._left: int | None = None
        self._part = "size"
        self._raw = self._text = b""
        self._received = self._taken = 0

    @property
    def begun(self) -> bool:
        """Whether any data has arrived."""
        return bool(self.status or self._raw)

    @property
    def body(self) -> bytes:
        """The body received so far."""
        return bytes(self._body)

    def feed(self, data: bytes) -> list[bytes]:
        """Parses received bytes and returns the data of the events that they complete.

        Raises ValueError if the data is not HTTP or longer than `most`.
        """
        self._received += len(data)
        raw = self._raw + data if self._raw else data
        while not self.status:
            head, found, rest = raw.partition(b"\r\n\r\n")
            if len(head) > MOST_HEAD or not raw.startswith(b"HTTP/"[: len(raw)]):
                raise ValueError("the response is not HTTP")
            if not found:
                self._raw = raw
                return []
            self._begin(head)
            self._raw, raw = b"", rest
        payload = self._dechunked(raw) if self._chunked else self._plain(raw)
        self._taken += len(payload)
        if self._taken > self._most or self._received > MOST_FRAMING * self._most + MOST_HEAD:
            raise ValueError(f"the answer is longer than {self._most} bytes")
        if self._streams:
            return self._events(payload)
        self._body += payload
        return []

    def close(self) -> None:
        """Handles the end of the connection, which ends a body without a declared length."""
        self.reusable = False
        if self.status and not self._chunked and self._left is None:
            self.ended = True

    def _begin(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if version not in ("HTTP/1.0", "HTTP/1.1") or not _is_number(code) or rest[3:4] not in ("", " "):
            raise ValueError("the response is not HTTP/1.1")
        status = int(code)
        if not LEAST_STATUS <= status <= MOST_STATUS:
            raise ValueError(f"{status} is not an HTTP status")
        if status in INTERIM_STATUSES:
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip() or not name.isascii() or "\0" in value:
                raise ValueError("a header is malformed")
            key, value = name.lower(), value.strip()
            if headers.setdefault(key, value) != value and key in ("content-length", "transfer-encoding"):
                raise ValueError(f"conflicting {key} headers")
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise ValueError("the answer is compressed although not requested")
        self._streams = headers.get("content-type", "").lower().startswith("text/event-stream")
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        self._chunked = coding is not None
        if coding is not None and (coding.lower() != "chunked" or length is not None):
            raise ValueError("the length of the answer is ambiguous")
        if length is not None:
            if not _is_number(length) or len(length) > MOST_DIGITS:
                raise ValueError("Content-Length is not a number")
            self._left = int(length)
        self.status = status
        self.ended = self._left == 0 or status in BODILESS_STATUSES
        self.reusable = headers.get("connection", "").lower() != "close" and version == "HTTP/1.1"

    def _dechunked(self, raw: bytes) -> bytes:
        parts, at = [], 0
        while at < len(raw) and not self.ended:
            if self._left:
                part = raw[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                continue
            end = raw.find(b"\r\n", at)
            if end < 0:
                break
            self._take_line(raw[at:end])
            at = end + 2
        self._raw = b"" if self.ended else raw[at:]
        if len(self._raw) > MOST_HEAD:
            raise ValueError("a chunk length is too long")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _take_line(self, line: bytes) -> None:
        """Parses a line between chunks: a size, the end of a chunk, or part of the trailer."""
        if self._part == "trailer":
            self.ended = not line
        elif self._part == "end":
            if line:
                raise ValueError("a chunk is longer than its declared length")
            self._part = "size"
        else:
            size = line.partition(b";")[0].strip()
            if not size or len(size) > MOST_DIGITS or not HEX.issuperset(size):
                raise ValueError("a chunk length is not a number")
            self._left = int(size, 16)
            self._part = "end" if self._left else "trailer"

    def _plain(self, raw: bytes) -> bytes:
        if self.ended:
            raw = b""
        elif self._left is not None:
            if len(raw) > self._left:
                raw, self.reusable = raw[: self._left], False
            self._left -= len(raw)
            self.ended = not self._left
        return raw

    def _events(self, payload: bytes) -> list[bytes]:
        text = self._text + payload if self._text else payload
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n")
        *whole, self._text = text.split(b"\n\n")
        if len(self._text) > MOST_EVENT:
            raise ValueError(f"an event is longer than {MOST_EVENT} bytes")
        return [data for event in whole if (data := _data(event))]


def exchange(
    connection: socket.socket, request: bytes, seconds: float, body_seconds: float | None = None, most: int = MOST_BODY
) -> tuple[Response, list[bytes]]:
    """Sends a request and reads the whole response; returns the response and its events.

    seconds: the limit for all of it. body_seconds: the limit from the first byte of the response to its last. Raises
    TimeoutError and other OSErrors, and ValueError for a response that is not HTTP, too long or truncated.
    """
    deadline = time.monotonic() + seconds
    connection.settimeout(seconds)
    connection.sendall(request)
    response, events = Response(most), []
    while not response.ended:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not end in time")
        connection.settimeout(left)
        data = connection.recv(CHUNK)
        if not data:
            response.close()
            break
        if body_seconds is not None and not response.begun:
            deadline = min(deadline, time.monotonic() + body_seconds)
        events += response.feed(data)
    if not response.ended:
        raise ValueError("the answer was truncated" if response.begun else "the response is not HTTP")
    return response, events


def parsed(text: bytes) -> Any:
    """Parses JSON. Raises ValueError for invalid JSON, Infinity, bytes that are not UTF-8, and deep nesting."""
    try:
        return json.loads(text.decode(), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def printable(content: object, most: int = 300) -> str:
    """Text as one line, without control characters, at most `most` long."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(content)[: 4 * most]).split())[:most]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _data(event: bytes) -> bytes:
    """An event's data; b"" for a comment, which servers send to keep a connection open."""
    if event.startswith(b"data:") and b"\n" not in event:
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)
