"""Responses are taken apart in the same way however their bytes arrive."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.programs.bench.bench_target import EndpointError, Target
from rigup.programs.http_reader import Response, exchange, parsed
from tests.hostile import ends

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
EVENTS = b'data: {"a": 1}\n\n: still here\n\nevent: x\ndata: {"b":\ndata: 2}\r\n\r\ndata: [DONE]\n\n'
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (20, EVENTS[:20])
CHUNKED += b"%X;x=1\r\n%s\r\n0\r\nTrailer: x\r\n\r\n" % (len(EVENTS) - 20, EVENTS[20:])
SIZED = HEAD + b"Content-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS
FOUND = [b'{"a": 1}', b'{"b":\n2}', b"[DONE]"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
@pytest.mark.parametrize("whole", [CHUNKED, SIZED], ids=["chunked", "sized"])
def test_events_are_found_however_they_arrive(whole: bytes, size: int) -> None:
    response = Response()
    events = [event for n in range(0, len(whole), size) for event in response.feed(whole[n : n + size])]
    assert (events, response.status, response.ended, response.reusable) == (FOUND, 200, True, True)


def test_a_stream_that_ends_with_its_connection_is_whole_then() -> None:
    response = Response()
    assert response.feed(HEAD + b"\r\n" + EVENTS) == FOUND
    assert not response.ended
    response.close()
    assert (response.ended, response.reusable) == (True, False)


def test_a_chunked_stream_that_is_cut_is_not_whole() -> None:
    response = Response()
    response.feed(CHUNKED[:-4])
    response.close()
    assert not response.ended


def test_an_error_has_its_body() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfu")
    response.feed(b"ll!")
    assert (response.status, response.body, response.ended, response.reusable) == (503, b"full!", True, False)


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2p1\r\n", b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000])
def test_what_is_not_http_is_noticed(said: bytes) -> None:
    with pytest.raises(ValueError, match=" HTTP"):
        Response().feed(said)


@pytest.mark.parametrize("url", ["", "gpu1:8000", "ftp://gpu1", "http://", "http://a:99999", "http://[::1"])
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(EndpointError) as refused:
        Target.of(url, None)
    assert refused.value.message == f'"{url}" is not the address of an endpoint'


@pytest.mark.parametrize("url", ["http://me:secret@gpu1", "http://:secret@gpu1:8000", "http://gpu1/?key=secret"])
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(EndpointError) as refused:
        Target.of(url, None)
    assert refused.value.message == "an endpoint address must not contain a user or a query"


def test_an_address_may_end_in_v1() -> None:
    target = Target.of("http://[::1]:8000/engine/v1/", "secret")
    assert (target.url, target.host, target.port) == ("http://[::1]:8000/engine", "::1", 8000)
    head = target.head("/v1/models", 0)
    assert head == b"GET /engine/v1/models HTTP/1.1\r\nHost: [::1]:8000\r\nAuthorization: Bearer secret\r\n\r\n"
    assert "secret" not in repr(target)


@given(data=st.binary(max_size=3000), size=st.integers(1, 400), chunked=st.booleans())
def test_whatever_comes_is_a_response_or_a_reason(data: bytes, size: int, chunked: bool) -> None:
    head = HEAD + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n")
    for whole in (data, head + data):
        response = Response(most=1000)
        with suppress(ValueError):
            for n in range(0, len(whole), size):
                response.feed(whole[n : n + size])
            response.close()
        assert len(response.body) <= 1000


@given(parts=st.lists(st.binary(min_size=1, max_size=50), max_size=9), size=st.integers(1, 100))
def test_chunks_are_put_together_however_they_arrive(parts: list[bytes], size: int) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    whole, response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body, Response()
    for n in range(0, len(whole), size):
        response.feed(whole[n : n + size])
    assert (response.ended, response.body) == (True, b"".join(parts))


def test_what_comes_after_the_end_is_not_part_of_it() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 500 No\r\n")
    assert (response.status, response.body, response.ended, response.reusable) == (200, b"ok", True, False)


def test_an_interim_response_is_passed_over() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert (response.status, response.body, response.ended) == (200, b"ok", True)


@pytest.mark.parametrize(
    "text", [b"[" * 200_000, b'{"a":' * 100_000, b"NaN", b"-Infinity", b"\xff", b"", b"\xfe\xff\x00["]
)
def test_json_that_is_not_is_one_kind_of_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parsed(text)


def test_an_exchange_ends_in_time_whatever_comes() -> None:
    here, there = socket.socketpair()
    with here, there:

        def drip() -> None:
            with suppress(OSError):
                there.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    there.sendall(b" ")
                    time.sleep(0.02)

        threading.Thread(target=drip, daemon=True).start()
        with ends(), pytest.raises(TimeoutError):
            exchange(here, b"GET / HTTP/1.1\r\n\r\n", 3600, body_seconds=0.5)
        there.shutdown(socket.SHUT_RDWR)
