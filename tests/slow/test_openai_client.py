"""OpenAI's own client for Python works through a gateway: answers, streams, tools, and errors as its exceptions.

HAProxy is the distribution's, with the files that rigup renders; the engine is a stand-in.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import openai_client
from tests.unit.gateway.test_haproxy_running import KEY, LIMITED, NARROW, free_port, running

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None, reason="haproxy is not installed"),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the pinned wheels are for Python 3.11"),
    pytest.mark.rests_on("gateways"),
]
WORDS = [f"word{number} " for number in range(20)]
CALL = {
    "id": "call-1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
# Prints as JSON what it saw: results by name, and for errors the exception, its status and code.
CLIENT = """
import json, sys
import openai
port, keys = int(sys.argv[1]), json.loads(sys.argv[2])
def client(name="team", **more):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=keys[name], max_retries=0, **more)
def chat(client, model="small", **more):
    said = [{"role": "user", "content": "hello"}]
    return client.chat.completions.create(model=model, messages=said, **more)
def fails(call):
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code]
    return None
ours = client()
seen = {"chat": chat(ours).choices[0].message.content}
seen["stream"] = [piece.choices[0].delta.content for piece in chat(ours, stream=True) if piece.choices]
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
call = chat(ours, tools=tools).choices[0].message.tool_calls[0]
seen["tool"] = [call.function.name, json.loads(call.function.arguments)]
seen["models"] = [model.id for model in ours.models.list()]
seen["one"] = [model.id for model in client("narrow").models.list()]
seen["no key"] = fails(lambda: chat(client("wrong")))
seen["not yours"] = fails(lambda: chat(client("narrow"), "away"))
seen["unknown"] = fails(lambda: chat(ours, "nobody's"))
seen["no endpoint"] = fails(lambda: ours.images.generate(prompt="a cat"))
seen["too large"] = fails(lambda: chat(ours, user="x" * 2_000_000))
seen["away"] = fails(lambda: chat(ours, "away"))
limited = client("limited")
seen["too many"] = [fails(lambda: chat(limited)) for _ in range(5)][-1]
try:
    list(chat(ours, stream=True, user="break off"))
    seen["broken stream"] = "ended"
except Exception as error:
    seen["broken stream"] = type(error).__name__
print(json.dumps(seen))
"""


class Handler(BaseHTTPRequestHandler):
    """Stands for an engine: 20 words, whole or as a stream; a call if there are tools; a stream may break off."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.whole({"status": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("stream"):
            self.stream(breaks=asked.get("user") == "break off")
        elif asked.get("tools"):
            self.whole(completion("message", {"role": "assistant", "content": None, "tool_calls": [CALL]}))
        else:
            self.whole(completion("message", {"role": "assistant", "content": "".join(WORDS)}))

    def whole(self, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def stream(self, breaks: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = [json.dumps(completion("delta", {"content": word})) for word in WORDS] + ["[DONE]"]
        for event in events[:5] if breaks else events:
            text = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        if not breaks:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def completion(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, kind: content, "finish_reason": None}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "small", "choices": [choice]}


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of an environment with the client."""
    return openai_client.interpreter()


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A gateway in front of the engine; that of the model "away" does not run."""
    engine = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    engine.daemon_threads = True
    threading.Thread(target=engine.serve_forever, args=(0.02,), daemon=True).start()
    with running(tmp_path, {"small": [engine.server_port], "away": [free_port()]}) as gateway:
        yield gateway
    engine.shutdown()
    engine.server_close()


def test_the_official_client_works_through_it(python: Path, port: int) -> None:
    keys = json.dumps({"team": KEY, "narrow": NARROW, "limited": LIMITED, "wrong": "w" * 32})
    done = subprocess.run([python, "-c", CLIENT, str(port), keys], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "chat": "".join(WORDS),
        "stream": WORDS,
        "tool": ["weather", {"city": "Paris"}],
        "models": ["small", "away"],
        "one": ["small"],
        "no key": ["AuthenticationError", 401, "invalid_api_key"],
        "not yours": ["PermissionDeniedError", 403, "model_not_allowed"],
        "unknown": ["NotFoundError", 404, "model_not_found"],
        "no endpoint": ["NotFoundError", 404, "not_found"],
        "too large": ["APIStatusError", 413, "request_too_large"],
        "away": ["InternalServerError", 503, "no_backend"],
        "too many": ["RateLimitError", 429, "rate_limit_exceeded"],
        "broken stream": "APIConnectionError",
    }
