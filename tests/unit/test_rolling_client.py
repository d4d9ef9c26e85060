"""benchmarks/rolling_client.py: what it makes of answers that do not end as they must."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable

import pytest

from benchmarks.rolling_client import TEXT, Link, result_of


def event(text: str = "", **choice: object) -> bytes:
    return (
        f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': None, **choice}]})}\n\n".encode()
    )


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def whole(text: str, **choice: object) -> bytes:
    body = json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop", **choice}]}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


STREAM = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORDS, STOPPED, DONE, END = event(TEXT), event(finish_reason="stop"), b"data: [DONE]\n\n", b"0\r\n\r\n"
ANSWERS = {
    "ok": (True, STREAM + chunked(WORDS, STOPPED, DONE) + END, "ok"),
    "broken off": (True, STREAM + chunked(WORDS), "truncated"),
    "broken off in an event": (True, STREAM + chunked(WORDS) + b"ff\r\ndata: {", "truncated"),
    "an error event": (True, STREAM + chunked(event("one"), b'data: {"error": {}}\n\n') + END, "truncated"),
    "an error event and [DONE]": (True, STREAM + chunked(b'data: {"error": {}}\n\n', DONE) + END, "false end"),
    "words lack": (True, STREAM + chunked(event("one"), STOPPED, DONE) + END, "false end"),
    "no [DONE]": (True, STREAM + chunked(WORDS, STOPPED) + END, "false end"),
    "cut at its length": (True, STREAM + chunked(event("one"), event(finish_reason="length"), DONE) + END, "false end"),
    "whole": (False, whole(TEXT), "ok"),
    "half": (False, whole(TEXT)[:-9], "truncated"),
    "other words": (False, whole("one two"), "false end"),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
def test_what_came_of_an_answer(case: str, answering: Callable[[bytes], str]) -> None:
    stream, answer, wanted = ANSWERS[case]
    link = Link(answering(b"HTTP/1.1 200 OK\r\n" + answer), "key")
    with link.ask(stream, 50) as reply:
        assert (reply.status, result_of(reply, stream)) == (200, wanted)
    link.close()


@pytest.fixture
def answering() -> Callable[[bytes], str]:
    """Starts a server that gives one answer and closes; returns its address."""

    def start(answer: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            connection, _ = server.accept()
            with server, connection:
                asked = b""
                while b"max_tokens" not in asked or not asked.endswith(b"}"):
                    asked += connection.recv(65536)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    return start
