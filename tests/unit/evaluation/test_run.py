"""An evaluation with a stand-in for the harness: what it is given, what is kept, and every way in which it can fail."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from rigup.evaluation.harness import EvaluationRequest
from rigup.evaluation.run import check_endpoint, evaluated
from rigup.evaluation.store import read_result, store
from rigup.operations.primitives import jobs
from tests.hostile import SAFETY_S
from tests.serving import serving

KEY = "sk-very-secret"
ABOUT = {"host": "gpu1.lan", "service": "chat", "model": "m2"}
HEAD = """\
import json, os, pathlib, sys, time
words = sys.argv[1:]
given = dict(zip(words, words[1:]))
output = pathlib.Path(given["--output_path"]) / "m2"
"""
WRITES = """
output.mkdir(parents=True)
key = os.environ["OPENAI_API_KEY"]
assert key == "none" or not any(key in word for word in words)
told = {"sums": {"exact_match,none": 0.5, "exact_match_stderr,none": 0.1}}
result = {"results": told, "lm_eval_version": "9.9", "n-samples": {"sums": {"effective": 2}}, "cwd": os.getcwd()}
(output / "results_2026-11-22T00-00-00.json").write_text(json.dumps(result))
"""


@pytest.fixture
def harness(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a program that is started in place of the harness's Python, and does this."""

    def make(body: str) -> Path:
        program = tmp_path / "stand-in-harness"
        program.write_text(f"#!{sys.executable}\n{HEAD}{textwrap.dedent(body)}")
        program.chmod(0o755)
        return program

    return make


def run(program: Path, wanted: EvaluationRequest | None = None, key: str | None = KEY) -> dict[str, Any]:
    return evaluated("http://127.0.0.1:1", key, ABOUT, program, "0.4.13", wanted or EvaluationRequest(("sums",), 2))


def refused(program: Path) -> RigupError:
    with pytest.raises(RigupError) as caught:
        run(program)
    assert KEY not in f"{caught.value.message}{caught.value.hint}"
    return caught.value


def test_a_result_says_who_was_asked_what_and_how_well_it_answered(harness: Callable[[str], Path]) -> None:
    found = run(harness(WRITES))
    assert (found["schema"], found["harness"], found["endpoint"]) == (1, "9.9", ABOUT)
    assert found["tasks"]["sums"]["scores"][0]["value"] == 0.5
    assert found["conditions"]["limit"] == 2
    assert KEY not in json.dumps(found)


def test_an_endpoint_without_a_key_is_asked_without_one(harness: Callable[[str], Path]) -> None:
    program = harness('assert os.environ["OPENAI_API_KEY"] == "none"\n' + WRITES)
    assert run(program, key=None)["tasks"]


def test_the_files_of_own_tasks_are_where_the_tasks_are(harness: Callable[[str], Path], tmp_path: Path) -> None:
    program = harness('assert os.path.exists("questions.jsonl")\n' + WRITES)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/questions.jsonl").touch()
    assert run(program, EvaluationRequest(("sums",), 2, tmp_path / "tasks"))["tasks"]


def test_a_crash_is_told_in_its_last_words(harness: Callable[[str], Path]) -> None:
    error = refused(harness('print("it began"); raise RuntimeError("with " + os.environ["OPENAI_API_KEY"])'))
    assert isinstance(error, HostFailed)
    first, *lines = error.message.splitlines()
    assert first == "gpu1.lan: chat: the harness exited with 1:"
    assert lines[0] == "    it began"
    assert lines[-1] == "    RuntimeError: with <api key>"


def test_an_unknown_task_is_the_users(harness: Callable[[str], Path]) -> None:
    error = refused(harness('raise ValueError("Tasks not found: nosuch")'))
    assert isinstance(error, InputError)
    assert error.message == "--tasks: lm_eval does not know nosuch"


def test_questions_that_cannot_be_had(harness: Callable[[str], Path]) -> None:
    words = "Couldn't reach 'openai/gsm8k' on the Hub (LocalEntryNotFoundError)"
    error = refused(harness(f"raise ConnectionError({words!r})"))
    assert isinstance(error, Unreachable)
    assert error.message.startswith("gpu1.lan: chat: the harness cannot download its questions:\n")
    assert error.message.endswith(f"    ConnectionError: {words}")
    assert "--include-path" in (error.hint or "")


def test_an_end_without_a_result_is_a_failure(harness: Callable[[str], Path]) -> None:
    error = refused(harness('print("that was all")'))
    assert error.message == "gpu1.lan: chat: the harness ended without a result:\n    that was all"


def test_cancelled_it_ends_with_all_that_it_started(
    harness: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    program = harness(f"""
    import subprocess
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path({str(begun)!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
    time.sleep(600)
    """)
    monkeypatch.setattr(jobs, "cancelled", lambda: bool(begun.exists() and begun.read_text()))
    with pytest.raises(jobs.Cancelled) as caught:
        run(program)
    assert caught.value.message == ("gpu1.lan: chat: cancelled; incomplete evaluations are not stored")
    deadline = time.monotonic() + SAFETY_S
    while left := [process for process in begun.read_text().split() if lives(process)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def lives(process: str) -> bool:
    """Whether it has not ended; one that was killed takes a moment to be gone."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Endpoint(ThreadingHTTPServer):
    """Serves GET /v1/models, with a key if it has one."""

    daemon_threads = True
    key: str | None = None
    said: tuple[int, bytes] = (200, b'{"data": [{"id": "m2"}, {"id": "m3"}]}')


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        wanted = self.server.key and f"Bearer {self.server.key}"
        status, body = self.server.said
        if self.path != "/v1/models":
            status, body = 404, b"{}"
        elif wanted and self.headers.get("Authorization") != wanted:
            status, body = 401, b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving(Endpoint(("127.0.0.1", 0), Handler)) as server:
        yield server


def url(server: Endpoint) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_the_first_model_is_asked_unless_one_is_named(endpoint: Endpoint) -> None:
    assert check_endpoint(url(endpoint), None, None, "here") == "m2"
    assert check_endpoint(url(endpoint) + "/v1/", None, "m3", "here") == "m3"
    endpoint.key = KEY
    assert check_endpoint(url(endpoint), KEY, None, "here") == "m2"


@pytest.fixture
def proxied(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose programs are told to go by a proxy, where nobody is, and whose netrc has a password for all."""
    for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "mirror.lan")
    monkeypatch.delenv("no_proxy", raising=False)
    (tmp_path / ".netrc").write_text("default login me password mine\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("proxied")
def test_no_proxy_sees_the_key_and_no_other_password_takes_its_place(endpoint: Endpoint) -> None:
    endpoint.key = KEY
    assert check_endpoint(url(endpoint), KEY, None, "here") == "m2"


@pytest.mark.usefixtures("proxied")
@pytest.mark.parametrize("others", ["mirror.lan", "*", ""])
def test_the_harness_asks_the_endpoint_directly_and_all_else_as_it_was(
    harness: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, others: str
) -> None:
    monkeypatch.setenv("NO_PROXY", others)
    asks = """
    from requests.utils import get_environ_proxies, get_netrc_auth
    address = json.loads(given["--model_args"])["base_url"]
    assert (get_environ_proxies(address), get_netrc_auth(address)) == ({}, None)
    """
    asks += f'assert bool(get_environ_proxies("https://huggingface.co/datasets")) == {others != "*"}\n'
    assert run(harness(textwrap.dedent(asks) + WRITES))["tasks"]


@pytest.mark.parametrize(
    ("own", "key", "model", "kind", "message"),
    [
        (KEY, None, None, InputError, "here: requires "),
        (KEY, "sk-other", None, InputError, "here: does not accept "),
        (None, None, "m4", InputError, 'here: model "m4" is not served'),
    ],
)
def test_a_wrong_key_or_model_is_said_before_anything_is_asked(
    endpoint: Endpoint, own: str | None, key: str | None, model: str | None, kind: type[RigupError], message: str
) -> None:
    endpoint.key = own
    with pytest.raises(kind) as caught:
        check_endpoint(url(endpoint), key, model, "here")
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("said", [(500, b"{}"), (200, b"<html>"), (200, b'{"data": []}'), (200, b"[]")])
def test_what_is_not_an_endpoint(endpoint: Endpoint, said: tuple[int, bytes]) -> None:
    endpoint.said = said
    with pytest.raises(HostFailed) as caught:
        check_endpoint(url(endpoint), None, None, "here")
    expected = f"here: not an OpenAI-compatible endpoint: GET /v1/models returned HTTP {said[0]}"
    assert caught.value.message == expected


def test_an_endpoint_that_is_down(endpoint: Endpoint) -> None:
    endpoint.shutdown()
    endpoint.server_close()
    with pytest.raises(Unreachable) as caught:
        check_endpoint(url(endpoint), None, None, "here")
    assert caught.value.message == "here: not reachable"


def test_results_lie_beside_each_other_by_checkpoint(harness: Callable[[str], Path], tmp_path: Path) -> None:
    found = run(harness(WRITES))
    found["began"] = "2026-11-22T00:09:30+00:00"
    found["endpoint"] = ABOUT | {"checkpoint": {"repo": "them/M2-NVFP4", "quant": "NVFP4"}}
    first, second = store(tmp_path, found), store(tmp_path, found)
    folder = tmp_path / "evaluations/them_M2-NVFP4/NVFP4"
    assert first == folder / "gpu1.lan-chat-20261122T000930Z.json"
    assert second == folder / "gpu1.lan-chat-20261122T000930Z-2.json"
    assert read_result(str(first)) == found
    bare = found | {"endpoint": {"host": "127.0.0.1:8000", "service": "", "model": "m2"}}
    assert store(tmp_path, bare).parent == tmp_path / "evaluations/127.0.0.1_8000/m2"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"schema": 1}', '{"schema": 2, "tasks": {}, "endpoint": {}, "conditions": {}}']
)
def test_what_is_not_a_result(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_result(str(path))
    assert caught.value.message == f"{path}: not a result of rigup eval"
