"""What a host says of its service, by what comes back from it over HTTP."""

from __future__ import annotations

import ast
import gzip
import json
import os
import pwd
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rigup.programs
from rigup.operations.service.reply import read_reply
from rigup.programs import ask as program
from rigup.programs import http_reader
from tests.hostile import SAFETY_S
from tests.serving import answering

PROGRAMS = Path(rigup.programs.__file__).parent
UNIT = "rigup-chat.service"
# every process here is taken for one of the unit's
OWN = f"""
import sys
sys.path[0:0] = [{str(PROGRAMS)!r}]
import listeners
listeners.unit_of = lambda pid: {UNIT!r}
import ask
"""
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
        "unit": UNIT,
        "wait_s": 60,
        "timeout_s": 60,
        **more,
    }
    words = [sys.executable, "-IS", "-c", OWN + "ask.main()"]
    done = subprocess.run(
        words, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=SAFETY_S
    )
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
    assert said.pop("seconds") >= 0
    assert said == {"state": "answered", "answer": "Paris.", "reasoning": "", "tokens": 3, "tokens_per_second": 50.12}
    health, asked = heard
    assert health.split(b"\r\n")[0] == b"GET /health HTTP/1.1"
    head, _, body = asked.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /v1/chat/completions HTTP/1.1",
        f"Host: {url.removeprefix('http://')}".encode(),
        b"Connection: close",
        b"Content-Type: application/json",
        f"Content-Length: {len(body)}".encode(),
    ]
    assert json.loads(body)["messages"] == [{"role": "user", "content": "Was ist die Hauptstadt? é"}]


def router(*states: str, status: str = "200 OK") -> Callable[[bytes], bytes]:
    """What llama-server's router says: models "m0", "m1", ... in these states, the last one with an alias."""
    models = [{"id": f"m{number}", "aliases": [], "status": {"value": state}} for number, state in enumerate(states)]
    models[-1]["aliases"] = ["last:8b"]

    def reply(said: bytes) -> bytes:
        if said.startswith(b"GET /v1/models "):
            return answer({"object": "list", "data": models}, status)
        named = json.loads(said.partition(b"\r\n\r\n")[2] or b"{}").get("model")
        return completing(answer({**COMPLETION, "choices": [{"message": {"content": f"I am {named}"}}]}))(said)

    return reply


@pytest.mark.parametrize(
    ("says", "resident"),
    [
        (router("loaded", "unloaded"), "m0"),
        (router("unloaded", "loading"), "last:8b"),
        (router("unloaded", "unloaded"), "a-model"),
        (router("loaded", "unloaded", status="500 Internal Server Error"), "a-model"),
        (completing(answer(COMPLETION)), "a-model"),
    ],
    ids=["one", "an alias", "none", "an error", "not a router"],
)
def test_of_models_that_take_turns_the_resident_one_is_asked(says: Callable[[bytes], bytes], resident: str) -> None:
    with serving(says) as url:
        said = ask(url, swaps=True)
    assert (said["state"], said["model"]) == ("answered", resident)
    assert said["answer"] in (f"I am {resident}", "Paris.")


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


def saying(message: Any, **more: Any) -> bytes:
    return answer({**COMPLETION, "choices": [{"message": message}], **more})


def framed(head: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode("latin-1") + body


DEEP = b"[" * 200_000
BOMB = gzip.compress(b" " * 10_000_000)
UNUSABLE = {
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n", "the response is not HTTP"),
    "nothing": (b"", "the response is not HTTP"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", "the response is not HTTP/1.1"),
    "a status of no kind": (b"HTTP/1.1 999 No\r\n\r\n", "999 is not an HTTP status"),
    "not JSON": (answer(b"<html>"), "Expecting value: line 1 column 1 (char 0)"),
    "cut off": (answer(COMPLETION)[:-20], "the answer was truncated"),
    "not an object": (answer([1]), "choices is missing or invalid"),
    "choices of no kind": (answer({**COMPLETION, "choices": {"0": 1}}), "choices is missing or invalid"),
    "no choices": (answer({**COMPLETION, "choices": []}), "message is missing or invalid"),
    "a choice of no kind": (answer({**COMPLETION, "choices": [7]}), "message is missing or invalid"),
    "empty": (saying({"content": ""}), "the answer is empty"),
    "no message": (saying(None), "message is missing or invalid"),
    "a number as message": (saying(3), "message is missing or invalid"),
    "a list as content": (saying({"content": [{"type": "text", "text": "Paris."}]}), "content is not text"),
    "an object as reasoning": (saying({"content": "", "reasoning": {"a": 1}}), "reasoning is not text"),
    "no usage": (saying({"content": "Hm."}, usage=None), "usage is missing or invalid"),
    "words as count": (
        saying({"content": "Hm."}, usage={"completion_tokens": "3"}),
        "completion_tokens is missing or invalid",
    ),
    "truth as count": (
        saying({"content": "Hm."}, usage={"completion_tokens": True}),
        "completion_tokens is missing or invalid",
    ),
    "too many tokens": (saying({"content": "Hm."}, usage={"completion_tokens": 10**30}), "the answer is empty"),
    "Infinity": (answer(b'{"usage": Infinity}'), "Infinity is not a number"),
    "deep": (answer(DEEP), "JSON is nested too deeply"),
    "not UTF-8": (answer(b'{"\xff": 1}'), "'utf-8' codec can't decode byte 0xff in position 2: invalid start byte"),
    "compressed": (
        framed(f"Content-Encoding: gzip\r\nContent-Length: {len(BOMB)}", BOMB),
        "the answer is compressed although not requested",
    ),
    "too long": (answer(b" " * (http_reader.MOST_BODY + 1)), "the answer is longer than 1048576 bytes"),
    "two lengths": (framed("Content-Length: 2\r\nContent-Length: 3", b"{}"), "conflicting content-length headers"),
    "length and chunks": (
        framed("Content-Length: 2\r\nTransfer-Encoding: chunked", b"{}"),
        "the length of the answer is ambiguous",
    ),
    "a negative length": (framed("Content-Length: -1"), "Content-Length is not a number"),
    "a foreign digit as length": (framed("Content-Length: \xb2"), "Content-Length is not a number"),
    "chunks of nonsense": (
        framed("Transfer-Encoding: chunked", b"0x4\r\nnope\r\n"),
        "a chunk length is not a number",
    ),
    "a chunk without end": (framed("Transfer-Encoding: chunked", b"4" * 70_000), "a chunk length is too long"),
    "a header of no kind": (framed("hello"), "a header is malformed"),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "the response is not HTTP"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_is_not_a_completion_has_failed(case: str) -> None:
    reply, why = UNUSABLE[case]
    with serving(completing(reply)) as url:
        assert ask(url) == {"state": "failed", "why": f"unexpected response: {why}"}


def test_an_error_is_shown_in_one_line_without_control_characters() -> None:
    with serving(completing(answer(b"where?\x1b[2J\r\n\x00\xff", "404 Not Found"))) as url:
        assert ask(url) == {"state": "failed", "why": "HTTP 404: where? [2J \ufffd"}


@pytest.mark.parametrize("speed", [0, -1, "fast", True, 1e300, [], {}])
def test_a_speed_that_cannot_be_is_measured_here(speed: Any) -> None:
    with serving(completing(saying({"content": "Hm."}, timings={"predicted_per_second": speed}))) as url:
        said = ask(url)
    assert said["state"] == "answered" and 0 < said["tokens_per_second"] < 1e9


def test_a_service_that_still_loads_is_asked_again_later() -> None:
    with serving(completing(answer(b"Loading model", "503 Service Unavailable"))) as url:
        assert ask(url) == {"state": "starting", "why": "HTTP 503: Loading model"}


@contextmanager
def dribbling(first: bytes, pause: float) -> Iterator[str]:
    """An address whose answers begin well, and then go on by a byte for ever."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            said = connection.recv(65536)
            if said.startswith(b"GET /health "):
                connection.sendall(HEALTHY)
                return
            connection.sendall(first)
            while True:
                connection.sendall(b" ")
                time.sleep(pause)

    with answering(serve) as url:
        yield url


def test_a_body_that_drips_ends_with_the_time_there_is() -> None:
    with dribbling(b"HTTP/1.1 200 OK\r\n\r\n", 0.05) as url:
        said = ask(url, timeout_s=2)
    assert said == {"state": "failed", "why": "unexpected response: timed out"} or "in time" in said["why"]


def test_a_flood_ends_with_the_room_there_is() -> None:
    with dribbling(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (8 << 20), 1) as url:
        said = ask(url, timeout_s=60)
    assert said["state"] == "failed" and f" {http_reader.MOST_BODY} bytes" in said["why"]


def test_nothing_is_said_to_a_port_of_somebody_else(tmp_path: Path) -> None:
    heard: list[bytes] = []

    def reply(said: bytes) -> bytes:
        heard.append(said)
        return completing(answer(COMPLETION))(said)

    (tmp_path / "key").write_text("sk-secret\n")
    request = {"unit": UNIT, "model": "m", "question": "Hm?", "max_tokens": 1, "key_file": str(tmp_path / "key")}
    with serving(reply) as url:
        request |= {"url": url, "health": "/health", "wait_s": 60, "timeout_s": 60}
        words = [sys.executable, "-EsS", str(PROGRAMS / "ask.py")]
        done = subprocess.run(
            words, input=json.dumps(request), capture_output=True, text=True, check=True, timeout=SAFETY_S
        )
    who = pwd.getpwuid(os.getuid()).pw_name
    port = url.rpartition(":")[2]
    why = f"port {port} belongs to user {who} (pid {os.getpid()}, "
    said = json.loads(done.stdout)
    assert said["state"] == "failed"
    assert said["why"].startswith(why) and said["why"].endswith(f"), not to {UNIT}")
    assert heard == []


def test_root_talks_to_nobody() -> None:
    shown = (
        OWN
        + """
import os
from unprivileged import output_of
sys.stdout.buffer.write(output_of(lambda: str((os.getresuid(), os.getresgid(), os.getgroups())).encode(), 5, 1000))
"""
    )
    done = subprocess.run(
        [sys.executable, "-IS", "-c", shown], capture_output=True, text=True, check=True, timeout=SAFETY_S
    )
    user, group, groups = ast.literal_eval(done.stdout)
    assert len(set(user)) == len(set(group)) == 1
    if os.geteuid() == 0:
        assert user[0] and group[0] and groups == []


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("content"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "usage", "completion_tokens", "x"]), inner)
    ),
    max_leaves=12,
)


@given(status=st.sampled_from([200, 404, 503]), body=st.binary() | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_whatever_a_service_says_is_a_reply_or_a_reason(status: int, body: bytes) -> None:
    try:
        reply = program.reply_to(status, body, 0.5)
    except ValueError:
        return
    assert read_reply(json.dumps(reply)).state == reply["state"]


@given(
    line=st.text()
    | TREES.map(json.dumps)
    | st.builds(lambda tree: json.dumps({"state": "answered", "answer": tree}), TREES)
)
def test_whatever_a_host_says_is_a_reply(line: str) -> None:
    assert read_reply(line).state in ("failed", "answered", "starting")


@pytest.mark.parametrize("line", ["", "[1]", "[" * 100_000, '{"state": "answered"}', '{"state": "failed", "why": 3}',
                                  '{"state": "answered", "answer": "x", "tokens": 1, "seconds": Infinity}',
                                  '{"state": "answered", "answer": "x", "tokens": 1, "seconds": 1e999}',
                                  '{"state": "answered", "answer": "\\ud800", "tokens": 1}',
                                  "x" * 2_000_000])  # fmt: skip
def test_a_reply_that_makes_no_sense_is_a_failure(line: str) -> None:
    reply = read_reply(line)
    assert reply.state == "failed" and reply.why.startswith("the host's reply ")


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("The capital of France is Paris.", ""),
        ("Der " * 16, ""),
        ("Der " * 17, "Der"),
        ("duct" * 64, "duct"),
        ("!" * 256, "!"),
        ("\n" * 64, " "),
        ("Well, " + "so it is, " * 20, "so it is,"),
        ("It is a large city on the river Seine, of which I know this: " + "." * 30, ""),
        ("The capital of France is Paris. " * 20, ""),
        ("Okay, the user asks for the capital. Hmm, hmm, hmm. Let me think about it", ""),
        ("0" * 15, ""),
        # as much of a longer phrase as fits into the tokens that are asked for
        ("It is " + "the capital of the city of " * 6, "the capital of the city of"),
        ("and I am the capital of France " * 5, "and I am the capital of France"),
        ("and I am the capital of France " * 3, ""),
        ("Der Der assistant assistant the the Der assistant the " * 2 + "Der the the the the Der", "assistant der the"),
        ("ﬁﬁ der Der DER assistant, der " * 4 + "x y z", ""),
        ("法国的" * 40, "法国的"),
        ("\ufffd" * 64, "\ufffd"),
        # what people and models say that is no loop
        ("ha " * 14, ""),
        ("哈" * 12 + "。", ""),
        ("巴黎是法国的首都。" * 20, ""),
        ("法国的首都是巴黎。它位于塞纳河畔。", ""),
        ("\n".join(f"{number}. Paris" for number in range(1, 30)), ""),
        ("Paris:\n" + "- a city\n- a river\n- a tower\n" * 2, ""),
        ("Row, row, row your boat,\nGently down the stream.\n" + "Merrily, " * 4 + "\nLife is but a dream.", ""),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n| 1 | 2 |\n", ""),
    ],
)
def test_a_text_that_only_repeats_itself_is_told_from_others(text: str, piece: str) -> None:
    assert program.repeated(text).strip() == piece.strip()
    assert bool(program.repeated(text)) == bool(piece)


@pytest.mark.parametrize("word", ["Paris", ""])
def test_a_loop_fails_whatever_it_says(word: str) -> None:
    reply = {"state": "answered", "answer": "Paris " * 40, "reasoning": ""}
    said = program.judged(reply, "Where?", {"service": "chat", "answer": word})
    assert said["state"] == "failed" and '"Paris" over and over' in said["why"]


@pytest.mark.parametrize(
    ("answer", "reasoning", "problem"),
    [("\n" * 64, "", "over"), (" ", "", "white space"), ("\n\n", "Hmm. Paris", ""), ("\n\n", "\n", "white space")],
)
def test_white_space_answers_nothing_and_hides_no_thoughts(answer: str, reasoning: str, problem: str) -> None:
    reply = {"state": "answered", "answer": answer, "reasoning": reasoning}
    said = program.judged(reply, "Where?", {"service": "chat", "answer": ""})
    assert (said["state"] == "failed", problem in said.get("why", "")) == (bool(problem), True)


def test_the_answer_of_the_model_that_is_resident_is_held_against_what_that_one_should_say() -> None:
    expected = {"m0": {"service": "chat", "answer": "I am m0"}, "last:8b": {"service": "code", "answer": "Paris"}}
    with serving(router("loaded", "unloaded")) as url:
        assert ask(url, model="last:8b", swaps=True, expected=expected)["state"] == "answered"
    with serving(router("unloaded", "loaded")) as url:
        said = ask(url, model="m0", swaps=True, expected=expected)
    assert said["state"] == "failed"
    assert 'it answered "I am last:8b", without "Paris" (services.code' in said["why"]
