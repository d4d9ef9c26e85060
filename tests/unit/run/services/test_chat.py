"""A chat's requests: the answer piece by piece, its pace, and what is said of endpoints that do not answer well."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rigup.errors import HostFailed, InputError
from rigup.run.services.chat import ChatAnswer, ask
from tests.unit.bench.conftest import Engine

HELLO = [{"role": "user", "content": "Hello"}]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    started: list[Engine] = []

    def start(**settings: Any) -> Engine:
        started.append(Engine(settings))
        return started[-1]

    yield start
    for each in started:
        each.stop()


@contextmanager
def server(response: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """An endpoint that answers one request with these bytes; its address and what it was sent."""
    listener, heard = socket.create_server(("127.0.0.1", 0)), []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(1 << 16))
            connection.sendall(response)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
    thread.join(60)
    listener.close()


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def asked(
    url: str, stopped: Callable[[], bool] = lambda: False, **more: Any
) -> tuple[ChatAnswer, list[tuple[str, bool]]]:
    pieces: list[tuple[str, bool]] = []
    options: dict[str, Any] = {"key": None, "model": "mock", "max_tokens": 5, "where": "a: chat", **more}
    answer = ask(
        url, messages=HELLO, show=lambda text, thought: pieces.append((text, thought)), stopped=stopped, **options
    )
    return answer, pieces


def test_an_answer_comes_in_pieces_with_its_pace(engine: Callable[..., Engine]) -> None:
    answer, pieces = asked(engine(ttft=0.2, itl=0.05, key="k").url, key="k")
    assert pieces == [(f" t{number}", False) for number in range(1, 6)]
    assert (answer.text, answer.tokens, answer.counted, answer.finish) == (" t1 t2 t3 t4 t5", 5, True, "length")
    assert 0.2 <= answer.first_seconds < answer.first_seconds + answer.streaming_seconds <= answer.seconds
    assert answer.tokens_per_second == pytest.approx(4 / answer.streaming_seconds)


def test_what_it_sends_and_what_a_model_thinks() -> None:
    thoughts = [{"reasoning_content": "hm"}, {"reasoning": "!", "content": None}, {"content": "Paris", "role": "x"}]
    events = b"".join(event({"choices": [{"delta": delta}]}) for delta in thoughts)
    with server(HEAD + events + b"data: [DONE]\n\n") as (url, heard):
        answer, pieces = asked(url)
    assert pieces == [("hm", True), ("!", True), ("Paris", False)]
    assert (answer.reasoning, answer.text, answer.tokens, answer.counted) == ("hm!", "Paris", 3, False)
    assert json.loads(heard[0].partition(b"\r\n\r\n")[2]) == {
        "model": "mock",
        "messages": HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
    }


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (HEAD + event({"error": {"message": "out of\nmemory"}}), "out of memory"),
        (b"HTTP/1.1 500 x\r\nContent-Length: 17\r\n\r\n" + b'{"error":"broken"}'[:17], "HTTP 500: "),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n", "the answer was cut off"),
        (b"", "the connection was closed without an answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "the response "),
    ],
    ids=["an error event", "an error", "cut", "closed", "not HTTP"],
)
def test_an_endpoint_that_does_not_answer_well(response: bytes, message: str) -> None:
    with server(response) as (url, _), pytest.raises(HostFailed) as raised:
        asked(url)
    assert raised.value.message.startswith(f"a: chat: {message}")


def test_events_of_no_known_form_are_left_out() -> None:
    strange = [
        [],
        {"choices": {}},
        {"choices": [7]},
        {"choices": [{"delta": 7}]},
        {"choices": [{"delta": {"content": 7}}]},
    ]
    strange += [{"usage": {"completion_tokens": "many"}}, {"choices": [{"delta": {}, "finish_reason": {}}]}]
    with server(HEAD + b"".join(map(event, strange)) + b"data: nonsense\n\ndata: [DONE]\n\n") as (url, _):
        answer, pieces = asked(url)
    assert (pieces, answer.tokens, answer.tokens_per_second, answer.finish) == ([], 0, None, "")


def test_a_wrong_key_is_input(engine: Callable[..., Engine]) -> None:
    with pytest.raises(InputError) as raised:
        asked(engine(key="right").url, key="wrong")
    assert raised.value.message == "a: chat: HTTP 401: Unauthorized"


def test_a_user_who_wants_no_more_gets_what_came(engine: Callable[..., Engine]) -> None:
    pieces: list[str] = []
    answer = ask(
        engine(ttft=0.05, itl=0.05).url,
        *(None, "mock", HELLO),
        lambda text, thought: pieces.append(text),
        lambda: len(pieces) >= 2,
        max_tokens=2000,
    )
    assert answer.finish == "cancelled"
    assert 2 <= len(pieces) < 2000
    assert answer.text == "".join(pieces)


def test_as_json() -> None:
    assert ChatAnswer("Paris", "", 1, True, 0.25, 0.0, 0.3, "stop").as_json() == {
        "text": "Paris",
        "reasoning": None,
        "tokens": 1,
        "finish": "stop",
        "seconds": 0.3,
        "first_token_seconds": 0.25,
        "tokens_per_second": None,
    }
