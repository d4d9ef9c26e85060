"""What a host says of its service, by what comes back from it over HTTP."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rigup.programs
from rigup.programs import ask as program

PROGRAM = Path(rigup.programs.__file__).parent / "ask.py"
COMPLETION = {
    "choices": [{"message": {"content": "Paris."}}],
    "usage": {"completion_tokens": 3},
    "timings": {"predicted_per_second": 50.123},
}
HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer(body: Any, status: str = "200 OK") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


@contextmanager
def serving(reply: Callable[[bytes], bytes], family: socket.AddressFamily = socket.AF_INET) -> Iterator[str]:
    """An address at which each connection gets `reply` to what it said, and is closed."""
    with socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    said = connection.recv(65536)
                    head, _, body = said.partition(b"\r\n\r\n")
                    length = next((int(x.split()[1]) for x in head.split(b"\r\n") if x.startswith(b"Content-Len")), 0)
                    while len(body) < length:
                        body += connection.recv(65536)
                    connection.sendall(reply(head + b"\r\n\r\n" + body))

        threading.Thread(target=serve, daemon=True).start()
        host, port = server.getsockname()[:2]
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)


def ask(url: str, **more: Any) -> dict[str, Any]:
    request = {
        "url": url,
        "health": "/health",
        "model": "a-model",
        "question": "Was ist die Hauptstadt? é",
        "max_tokens": 8,
        "key_file": None,
        "unit": "rigup-no-such-service.service",
        "wait_s": 5,
        "timeout_s": 5,
        **more,
    }
    words = [sys.executable, "-IS", str(PROGRAM), "-"]
    done = subprocess.run(words, input=json.dumps(request), capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def completing(reply: bytes) -> Callable[[bytes], bytes]:
    return lambda said: HEALTHY if said.startswith(b"GET /health ") else reply


def test_a_completion() -> None:
    heard: list[bytes] = []

    def reply(said: bytes) -> bytes:
        heard.append(said)
        return completing(answer(COMPLETION))(said)

    with serving(reply) as url:
        said = ask(url)
    assert said.pop("seconds") < 5
    assert said == {"state": "answered", "answer": "Paris.", "reasoning": "", "tokens": 3, "tokens_per_second": 50.12}
    health, asked = heard
    assert health.split(b"\r\n")[0] == b"GET /health HTTP/1.0"
    head, _, body = asked.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /v1/chat/completions HTTP/1.0",
        f"Host: {url.removeprefix('http://')}".encode(),
        b"Content-Type: application/json",
        f"Content-Length: {len(body)}".encode(),
    ]
    assert json.loads(body)["messages"] == [{"role": "user", "content": "Was ist die Hauptstadt? é"}]


def test_a_key_goes_into_a_header_and_ipv6_is_an_address(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret\n")

    def reply(said: bytes) -> bytes:
        right = b"Authorization: Bearer sk-secret\r\n" in said
        return completing(answer(COMPLETION) if right else answer(b"no", "401 Unauthorized"))(said)

    with serving(reply, socket.AF_INET6) as url:
        assert ask(url, key_file=str(tmp_path / "key"))["state"] == "answered"
        assert ask(url) == {"state": "failed", "why": "HTTP 401: no"}


def test_reasoning_alone_is_an_answer() -> None:
    message = {"content": None, "reasoning_content": "Hmm."}
    with serving(completing(answer({**COMPLETION, "choices": [{"message": message}], "timings": None}))) as url:
        said = ask(url)
    assert (said["answer"], said["reasoning"], said["state"]) == ("", "Hmm.", "answered")


EMPTY = {"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": 1}}
UNUSABLE = {
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "no usable answer: ValueError: what came back is not HTTP"),
    "nothing": (b"", "no usable answer: ValueError: what came back is not HTTP"),
    "not JSON": (answer(b"<html>"), "no usable answer: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
    "empty": (answer(EMPTY), "no usable answer: ValueError: the answer is empty"),
    "no choices": (answer({"choices": []}), "no usable answer: IndexError: list index out of range"),
    "no message": (
        answer({"choices": [{"message": None}]}),
        "no usable answer: AttributeError: 'NoneType' object has no attribute 'get'",
    ),
    "not found": (answer(b"where?", "404 Not Found"), "HTTP 404: where?"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_is_no_completion_has_failed(case: str) -> None:
    reply, why = UNUSABLE[case]
    with serving(completing(reply)) as url:
        assert ask(url) == {"state": "failed", "why": why}


def test_an_answer_that_is_cut_off_has_failed() -> None:
    with serving(completing(answer(COMPLETION)[:-20])) as url:
        said = ask(url)
    assert said["state"] == "failed" and said["why"].startswith("no usable answer: JSONDecodeError: ")


def test_a_service_that_still_loads_is_asked_again_later() -> None:
    with serving(completing(answer(b"Loading model", "503 Service Unavailable"))) as url:
        assert ask(url) == {"state": "starting", "why": "HTTP 503: Loading model"}


DEAR = {"collections", "enum", "json", "re", "selectors", "signal", "socket", "typing"}
EARLY_RUN = """
import sys
sys.path[0:0] = [sys.argv[1]]
import ask
ask.ask_early(sys.argv[2])
print(*sys.modules)
"""


def test_early_answers_and_refusals_come_line_by_line_and_cost_no_import(tmp_path: Path) -> None:
    broken = {"url": "http://127.0.0.1:1", "model": "a-model", "question": "Hm?", "max_tokens": 1, "key_file": None}
    pretty = json.dumps(COMPLETION, indent=1).encode()
    with serving(completing(answer(pretty))) as url:
        lines = {"ok": broken | {"url": url}, "refused": broken, "keyless": broken | {"key_file": "/no/such/key"}}
        file = tmp_path / "questions"
        file.write_text(
            "ask somebody 'else'\n"
            + "".join(f"{program.REMEMBERED} {name} {program.early_question(line)}\n" for name, line in lines.items())
        )
        words = [sys.executable, "-IS", "-c", EARLY_RUN, str(PROGRAM.parent), str(file)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    said, *refused, modules = done.stdout.splitlines()
    mark, name, seconds, text = said.split(" ", 3)
    assert (mark, name) == (program.EARLY, "ok")
    assert program.answer_in(text.encode(), float(seconds))["answer"] == "Paris."
    assert refused == [f"{program.EARLY} refused ", f"{program.EARLY} keyless "]
    assert not DEAR & set(modules.split())
