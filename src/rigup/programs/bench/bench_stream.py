"""One of several concurrent streams: sends a request and records when each part of the answer arrived.

On Linux the kernel timestamps each packet, so that a busy client does not lengthen the latency. The delay until the
client read the packet is recorded separately.
"""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import struct
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rigup.programs.bench.bench_endpoint import count, error_in
from rigup.programs.bench.bench_target import Target, complaint, parsed, words
from rigup.programs.http_reader import Response

CHUNK = 1 << 18
CUT = "the stream was interrupted"
# <asm-generic/socket.h>: SO_TIMESTAMPNS differs on 64-bit machines other than x86 and Arm
TIMESTAMPS = 35 if sys.platform == "linux" else None
STAMP = struct.Struct("qq")
LATEST = 60.0
# an engine sends one event per token and a few more; each has some hundred bytes
EVENTS_PER_TOKEN, SPARE_EVENTS = 4, 64
BYTES_PER_TOKEN, SPARE_BYTES = 1 << 14, 1 << 20
# the slowest rate that is accepted, however steady
SECONDS_PER_TOKEN = 10.0
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One request and its result. Times are seconds of the monotonic clock.

    arrivals: when each event with a piece of the answer arrived. last: when the last event with a choice arrived.
    asked: how many tokens were requested. tokens, prompt_tokens: the engine's counts, None if it does not report them.
    error: "" on success.
    """

    name: str
    counted: bool
    asked: int
    started: float = 0.0
    last: float = 0.0
    ended: float = 0.0
    arrivals: array[float] = field(default_factory=lambda: array("d"))
    tokens: int | None = None
    prompt_tokens: int | None = None
    error: str = ""


class Stream:
    """Holds one connection with at most one request. Calls `done` with each record when it has ended."""

    def __init__(
        self,
        target: Target,
        address: tuple[socket.AddressFamily, tuple[Any, ...]],
        selector: selectors.BaseSelector,
        done: Callable[[Stream, RequestRecord], None],
        late: array[float],
    ) -> None:
        self._target, self._address, self._selector, self._done, self._late = target, address, selector, done, late
        self._socket: socket.socket | None = None
        self._buffer = bytearray(CHUNK)
        self._view = memoryview(self._buffer)
        self._used = False
        self.record: RequestRecord | None = None
        self.last_data = 0.0

    def begin(self, record: RequestRecord, path: str, body: bytes) -> None:
        """Sends a request; its time starts with the first byte sent, not with the connection."""
        self.record, self._request = record, self._target.head(path, len(body), record.name) + body
        self._restart()

    def hanging(self, now: float, silence: float) -> str:
        """The reason to give up on the running request; "" to keep waiting.

        silence: seconds without a piece of the answer, even if other data arrives.
        """
        record = self.record
        if record is None:
            return ""
        if now - self.last_data > silence:
            return f"no data for {silence:.0f} s"
        longest = silence + SECONDS_PER_TOKEN * record.asked
        return f"not finished after {longest:.0f} s" if record.started and now - record.started > longest else ""

    def fail(self, why: str) -> None:
        """Ends the running request as failed."""
        self.close()
        if record := self.record:
            record.error, record.ended = why, time.monotonic()
            self.record = None
            self._done(self, record)

    def close(self) -> None:
        """Closes the connection and drops its request."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def _restart(self) -> None:
        self._out = memoryview(self._request)
        assert self.record is not None
        self._response, self._finished = Response(SPARE_BYTES + BYTES_PER_TOKEN * self.record.asked), False
        self.last_data = time.monotonic()
        self._used = self._socket is not None
        if self._socket is None:
            self._connect()
        else:
            self._send()

    def _connect(self) -> None:
        family, address = self._address
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if TIMESTAMPS and self._target.tls is None:
            connection.setsockopt(socket.SOL_SOCKET, TIMESTAMPS, 1)
        connection.connect_ex(address)
        self._socket = connection
        self._selector.register(connection, WRITE, self._connected)

    def _connected(self, _: int) -> None:
        assert self._socket is not None
        if number := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.fail(words(OSError(number, os.strerror(number))))
            return
        try:
            self._target.check(self._socket)
        except OSError as error:
            self.fail(words(error))
            return
        if self._target.tls is None:
            self._send()
        else:
            plain = self._socket
            self._selector.unregister(plain)
            self._socket = self._target.tls.wrap_socket(
                plain, server_hostname=self._target.host, do_handshake_on_connect=False
            )
            self._selector.register(self._socket, READ | WRITE, self._shake_hands)

    def _shake_hands(self, _: int) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(self._socket, READ, self._shake_hands)
        except ssl.SSLWantWriteError:
            self._selector.modify(self._socket, WRITE, self._shake_hands)
        except OSError as error:
            self.fail(words(error))
        else:
            self._send()

    def _send(self, _: int = 0) -> None:
        assert self._socket is not None and self.record is not None
        self.record.started = self.record.started or time.monotonic()
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._selector.modify(self._socket, READ | WRITE, self._sending)
        except OSError as error:
            self._lost(words(error))
        else:
            self._selector.modify(self._socket, READ, self._readable)

    def _sending(self, mask: int) -> None:
        """Sends the rest of a long prompt; an endpoint may reject it before it has received everything."""
        if mask & READ:
            self._readable(mask)
        if self._out and self._socket is not None and self.record is not None:
            self._send()

    def _lost(self, why: str) -> None:
        """Retries if the server closed an idle connection; otherwise the request fails."""
        if self._used and not self._response.begun:
            self.close()
            assert self.record is not None
            self.record.started = 0.0
            self._restart()
        else:
            self.fail(why)

    def _readable(self, _: int) -> None:
        assert self._socket is not None
        try:
            if TIMESTAMPS and self._target.tls is None:
                count, extra, _, _ = self._socket.recvmsg_into((self._buffer,), 64)
                arrived = now = time.monotonic()
                if extra:
                    seconds, nanoseconds = STAMP.unpack_from(extra[0][2])
                    late = time.time() - seconds - nanoseconds / 1e9
                    if 0 <= late < LATEST:
                        self._late.append(late)
                        arrived = now - late
            else:
                count = self._socket.recv_into(self._buffer)
                arrived = now = time.monotonic()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            if self.record is None:
                self.close()
            else:
                self._lost(words(error))
            return
        if self.record is None:  # no request is running: the endpoint closed an idle connection
            self.close()
            return
        if not count:
            self._closed()
            return
        try:
            events = self._response.feed(bytes(self._view[:count]))
        except ValueError as error:
            self.fail(str(error))
            return
        for event in events:
            self._take(event, arrived)
        if self._response.ended:
            self._end(arrived)
        elif len(self.record.arrivals) > EVENTS_PER_TOKEN * self.record.asked + SPARE_EVENTS:
            self.fail("received more than requested")

    def _closed(self) -> None:
        if self._used and not self._response.begun:
            self._lost("")
            return
        self._response.close()
        if self._response.ended or self._finished:
            self._end(time.monotonic())
        else:
            self.fail(CUT)

    def _take(self, event: bytes, arrived: float) -> None:
        record = self.record
        assert record is not None
        if event == b"[DONE]":
            self._finished = True
            return
        content = parsed(event)
        if not isinstance(content, dict):
            record.error = "an event that is not a JSON object"
            return
        choices, usage = content.get("choices"), content.get("usage")
        if choices:
            self._take_choice(choices, arrived, record)
        elif usage is None and (message := error_in(content)):
            record.error = f"error in the stream: {message}"
        if isinstance(usage, dict):
            record.tokens = count(usage.get("completion_tokens"))
            record.prompt_tokens = count(usage.get("prompt_tokens"))

    def _take_choice(self, choices: object, arrived: float, record: RequestRecord) -> None:
        choice = choices[0] if isinstance(choices, list) else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(delta, dict | None):
            record.error = "an event without a usable choice"
            return
        record.last = self.last_data = arrived
        text = choice.get("text") if delta is None else _text(delta)
        over = choice.get("finish_reason")
        if text or not (over or (delta and "role" in delta)):
            record.arrivals.append(arrived)
        if over:
            self._finished = True

    def _end(self, arrived: float) -> None:
        record, response = self.record, self._response
        assert record is not None
        if not response.reusable:
            self.close()
        if response.status != 200:
            record.error = complaint(response.status, response.body)
        elif not record.error and not self._finished:
            record.error = CUT if record.arrivals else "the answer is not a stream"
        elif not record.error and not record.arrivals:
            record.error = "an answer without a token"
        record.ended, self.record = arrived, None
        self._done(self, record)


def _text(delta: dict[str, object]) -> object:
    """The text that a chat event adds to the answer."""
    for key in ("content", "reasoning_content", "reasoning", "tool_calls"):
        if delta.get(key):
            return delta[key]
    return None
