"""An endpoint, or a host, that says what nobody should: each is one failed request or one message, in bounded time."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.bench.client import LevelRequest
from rigup.bench.lines import MOST_BYTES, read_line
from rigup.bench.result import LineCollector
from rigup.errors import HostFailed, RigupError
from tests.hostile import ends
from tests.serving import answering
from tests.unit.bench.conftest import measure

FEW = LevelRequest(1, 16, 4, requests=2)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHOICE = {"choices": [{"text": "a", "finish_reason": None}]}
LAST = {"choices": [{"text": "", "finish_reason": "length"}]}
USAGE = {"choices": [], "usage": {"completion_tokens": 4}}

Talk = Callable[[socket.socket], None]


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


GOOD = event(CHOICE) * 4 + event(LAST) + event(USAGE) + b"data: [DONE]\n\n"


def sized(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def saying(*pieces: bytes) -> Talk:
    return lambda connection: connection.sendall(b"".join(pieces))


def for_ever(first: bytes, again: bytes, pause: float = 0.0) -> Talk:
    def talk(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(again)
            time.sleep(pause)

    return talk


@contextmanager
def serving(talk: Talk, models: Any = None) -> Iterator[str]:
    """An engine that answers well until the benchmark has begun; then every completion is `talk`."""
    listed = json.dumps(models if models is not None else {"data": [{"id": "mock"}]}).encode()
    asked: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            said = b""
            while b"\r\n\r\n" not in said or (said.startswith(b"POST") and not said.endswith(b"}")):
                data = connection.recv(1 << 16)
                if not data:
                    return
                said += data
            if b"/v1/completions" in said:
                asked.append(said)
                # how prompts are to be written, and how long two of them are
                talk(connection) if len(asked) > well else connection.sendall(sized(STREAM, GOOD))
            else:
                found = listed if said.startswith(b"GET /v1/models ") else b"{}"
                status = b"200 OK" if found is listed else b"404 Not Found"
                connection.sendall(sized(b"HTTP/1.1 " + status + b"\r\n", found))
            connection.shutdown(socket.SHUT_WR)

    well = 3
    with answering(serve) as url:
        yield url


SILENT = "no data for 2 s"
DEEP = b"data: " + b"[" * 200_000 + b"\n\n"
HOSTILE: dict[str, tuple[Talk, str]] = {
    "no object": (saying(sized(STREAM, event([1]))), "an event that is not a JSON object"),
    "deep": (saying(sized(STREAM, DEEP)), "an event that is not a JSON object"),
    "Infinity": (saying(sized(STREAM, b'data: {"usage": Infinity}\n\n')), "an event that is not a JSON object"),
    "choices of no kind": (saying(sized(STREAM, event({"choices": {"0": 1}}))), "an event without a usable choice"),
    "a choice of no kind": (saying(sized(STREAM, event({"choices": [7]}))), "an event without a usable choice"),
    "a delta of no kind": (
        saying(sized(STREAM, event({"choices": [{"delta": "x"}]}))),
        "an event without a usable choice",
    ),
    "compressed": (
        saying(STREAM + b"Content-Encoding: gzip\r\n\r\nxx"),
        "compressed",
    ),
    "chunks of nonsense": (
        saying(STREAM + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n"),
        "a chunk length",
    ),
    "tokens without end": (for_ever(STREAM + b"\r\n", event(CHOICE)), "received more than requested"),
    "an event without end": (for_ever(STREAM + b"\r\n", b"x" * 65536), "an event is longer than 262144 bytes"),
    "an error without end": (
        for_ever(b"HTTP/1.1 500 No\r\n\r\n", b"x" * 65536),
        " 1114112 bytes",
    ),
    "comments without end": (for_ever(STREAM + b"\r\n", b": here\n\n", 0.05), SILENT),
    "empty events without end": (for_ever(STREAM + b"\r\n", event({"choices": []}), 0.05), SILENT),
    "an error with escapes": (
        saying(sized(b"HTTP/1.1 500 No\r\n", b'{"error": "\\u001b[2Jgone\\u0007"}')),
        "HTTP 500: [2Jgone",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_answer_is_a_failed_request(case: str) -> None:
    talk, why = HOSTILE[case]
    with ends(), serving(talk) as url:
        (level,) = measure(url, FEW, timeout_s=2 if why == SILENT else 3600)["levels"]
    ((failure, count),) = level["failures"].items()
    assert (why in failure, count) == (True, 2), failure


@pytest.mark.parametrize("usage", [7, [], {"completion_tokens": "4"}, {"completion_tokens": -1, "prompt_tokens": {}}])
def test_a_count_that_cannot_be_is_not_taken(usage: Any) -> None:
    body = event(CHOICE) * 4 + event(LAST) + event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
    with serving(saying(sized(STREAM, body))) as url:
        (level,) = measure(url, FEW, timeout_s=60)["levels"]
    assert level["failures"] == {}
    assert level["output_tokens"] == {"least": 4, "most": 4}


@pytest.mark.parametrize(
    "models",
    [[], {"data": 7}, {"data": [7]}, {"data": [{"id": 7}]}, {"data": [{"id": "\x1b[2J"}]}, {"data": {"id": 1}}],
)
def test_a_list_of_models_that_is_not_one_is_refused(models: Any) -> None:
    with serving(saying(b""), models) as url, pytest.raises(HostFailed) as failed:
        measure(url, FEW)
    assert failed.value.message == f"{url}/v1/models: no list of models"


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
KINDS = st.sampled_from(["endpoint", "progress", "left_out", "level", "end", "error"])


@given(kind=KINDS, said=TREES)
def test_whatever_a_host_says_is_a_line_or_one_message(kind: str, said: Any) -> None:
    collected = LineCollector("gpu1: chat: ", lambda progress: None)
    try:
        collected.take(json.dumps({kind: said}))
    except RigupError as error:
        assert error.message.startswith("gpu1: chat: ")


@given(line=st.binary())
def test_whatever_a_host_prints_is_a_line_or_none(line: bytes) -> None:
    try:
        found = read_line(line)
    except ValueError:
        return
    assert found is None or line.lstrip().startswith(b"{")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"end": {"complete": "yes"}}', "end.complete Input should be a valid boolean"),
        ('{"level": {"concurrency": 1e999}}', "level.concurrency Input should be a valid integer"),
        ('{"error": {"kind": "x"}}', "error.kind Input should be 'input', 'unreachable' or 'failed'"),
        ("{" + " " * MOST_BYTES, "a line is too long"),
    ],
)
def test_a_line_that_makes_no_sense_is_told_with_its_place(line: str, why: str) -> None:
    with pytest.raises(HostFailed) as failed:
        LineCollector("gpu1: chat: ", lambda progress: None).take(line)
    assert failed.value.message.startswith(f"gpu1: chat: the output of the benchmark is invalid: {why}")
