"""A server that never ends, inflates, drips or nests is given up, in bounded time and memory."""

from __future__ import annotations

import gzip
import itertools
import json
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
import requests

from rigup.sources.bounded_http import BoundedSession, BoundExceeded, read_json, time_limit
from tests.hostile import SAFETY_S, ends
from tests.unit.sources.hostile_server import head, hostile_server

MEBIBYTE = 2**20
ZEROS = gzip.compress(bytes(64 * MEBIBYTE))


def endless(request: str) -> Iterator[bytes]:
    yield head("Content-Type: text/html")
    yield from itertools.repeat(bytes(MEBIBYTE))


def endless_chunks(request: str) -> Iterator[bytes]:
    yield head("Transfer-Encoding: chunked")
    yield from itertools.repeat(b"10000\r\n" + bytes(65536) + b"\r\n")


def endless_chunk_size(request: str) -> Iterator[bytes]:
    yield head("Transfer-Encoding: chunked")
    yield from itertools.repeat(b"0" * MEBIBYTE)


def inflating(request: str) -> Iterable[bytes]:
    return (head("Content-Encoding: gzip", f"Content-Length: {len(ZEROS)}"), ZEROS)


def inflating_chunks(request: str) -> Iterator[bytes]:
    yield head("Content-Encoding: gzip", "Transfer-Encoding: chunked")
    yield b"%x\r\n%s\r\n0\r\n\r\n" % (len(ZEROS), ZEROS)


def endless_redirect(request: str) -> Iterator[bytes]:
    yield head("Location: /again", status="302 Found")
    yield from itertools.repeat(bytes(MEBIBYTE))


def many_headers(request: str) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n"
    yield from itertools.repeat(b"X: y\r\n")


@pytest.mark.parametrize(
    "script",
    [endless, endless_chunks, endless_chunk_size, inflating, inflating_chunks, endless_redirect, many_headers],
    ids=lambda script: script.__name__,
)
def test_memory_is_bounded(script) -> None:
    with hostile_server(script) as url, time_limit(SAFETY_S):
        tracemalloc.start()
        try:
            with pytest.raises(requests.RequestException):
                BoundedSession(MEBIBYTE).get(url, timeout=SAFETY_S)
            assert tracemalloc.get_traced_memory()[1] < 16 * MEBIBYTE
        finally:
            tracemalloc.stop()


def dripping_head(request: str) -> Iterator[bytes | float]:
    yield b"HTTP/1.1 200 OK\r\n"
    for letter in itertools.cycle(b"X"):
        yield bytes([letter])
        yield 0.05


def dripping_body(request: str) -> Iterator[bytes | float]:
    yield head("Content-Length: 1000000")
    while True:
        yield b"x"
        yield 0.05


def continuing(request: str) -> Iterator[bytes | float]:
    while True:
        yield head(status="100 Continue")
        yield 0.01


def redirecting(request: str) -> Iterable[bytes | float]:
    return (0.2, head("Location: /again", "Content-Length: 0", "Connection: close", status="302 Found"))


def silent(request: str) -> Iterable[float]:
    return (3600.0,)


@pytest.mark.parametrize(
    "script", [dripping_head, dripping_body, continuing, redirecting, silent], ids=lambda script: script.__name__
)
def test_time_is_bounded(script) -> None:
    with (
        hostile_server(script) as url,
        ends(),
        time_limit(0.5),
        pytest.raises(BoundExceeded, match="did not finish its response in time"),
    ):
        BoundedSession(MEBIBYTE).get(url, timeout=3600)


def test_an_answer_within_the_bounds_is_whole() -> None:
    content = bytes(range(256)) * 4096
    packed = gzip.compress(content)
    scripts = (
        lambda request: (head(f"Content-Length: {len(content)}"), content),
        lambda request: (head("Content-Encoding: gzip", f"Content-Length: {len(packed)}"), packed),
    )
    for script in scripts:
        with hostile_server(script) as url, time_limit(SAFETY_S):
            assert BoundedSession(len(content)).get(url, timeout=SAFETY_S).content == content
            with pytest.raises(BoundExceeded, match="sent more than"):
                BoundedSession(len(content) - 1).get(url, timeout=SAFETY_S)


def test_an_inner_limit_does_not_lift_an_outer_one() -> None:
    with (
        hostile_server(silent) as url,
        time_limit(0.2),
        time_limit(60),
        pytest.raises(BoundExceeded),
    ):
        BoundedSession(10).get(url, timeout=20)


@pytest.mark.usefixtures("nothing_to_collect")
@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b"[Infinity]",
        b"[" + b"[]," * 1000 + b"[]]",
        b"",
        b"\xff",
        b"1" * 9999,
    ],
    ids=["lists", "objects", "NaN", "Infinity", "many values", "nothing", "not text", "long number"],
)
def test_what_is_not_sane_json_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(content, 1000)


def test_json_is_read() -> None:
    assert read_json(json.dumps({"a": [1, None, "ü"]}).encode(), 10) == {"a": [1, None, "ü"]}
