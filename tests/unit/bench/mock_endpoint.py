"""A stand-in for an engine's API that answers with known delays and known faults, as a process of its own.

    python mock_endpoint.py '{"style": "vllm", "ttft": 0.2, "itl": 0.02}'       prints its port, then serves

It stands for the interfaces of vLLM, SGLang and llama.cpp as far as a benchmark sees them, and for an engine that has
no tokenizer to ask ("plain"). GET /times tells when each token was sent: by request, (before, after) each send, in
seconds of the monotonic clock, which all processes of a machine share. Python standard library only.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

SETTINGS: dict[str, Any] = {
    "style": "vllm",
    "model": "mock",
    "aliases": [],
    "port": 0,
    "context": 262144,
    "build": "b1-mock",  # as llama.cpp says it: number and commit
    "ttft": 0.0,
    "itl": 0.0,
    "running": 100000,  # how many requests run at once; others are queued
    "key": None,
    "refuse_every": 0,  # every so many-th request is answered with 503
    "refuse_all": False,
    "hang": False,  # requests are taken, and nothing ever comes back
    "cut_after": 0,  # tokens after which the connection is dropped
    "error_after": 0,  # tokens after which an error comes in the stream
    "spare_requests": 0,  # how many requests are answered well before a fault sets in
    "close_after": None,  # seconds after an answer at which its connection is closed, without a word before
    "keep_times": True,
    "metrics": True,
    "metrics_first": 0,  # how often the metrics must have been asked for before any but spare requests are answered
    "router": False,  # llama.cpp's: what is not a completion must name the model, and not have it loaded
}
NAMED = {"model": "mock", "autoload": "false"}
OWNED_BY = {"vllm": "vllm", "sglang": "sglang", "llama.cpp": "llamacpp"}
METRICS = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    "llama.cpp": ("llamacpp:requests_processing", "llamacpp:requests_deferred"),
}


class Engine:
    """What all connections share: the requests that run, the queue, and when what was sent."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = {**SETTINGS, **settings}
        self.running: set[Generation] = set()
        self.queue: list[Generation] = []
        self.times: dict[str, list[tuple[float, float]]] = {}
        self.asked = 0
        self.metrics_asked = 0

    def take(self, generation: Generation) -> None:
        self.queue.append(generation)
        self.admit()

    def leave(self, generation: Generation) -> None:
        self.running.discard(generation)
        if generation in self.queue:
            self.queue.remove(generation)
        self.admit()

    def admit(self) -> None:
        if self.asked > self.settings["spare_requests"] and self.metrics_asked < self.settings["metrics_first"]:
            return
        while self.queue and len(self.running) < self.settings["running"]:
            generation = self.queue.pop(0)
            self.running.add(generation)
            generation.start()

    def metrics(self) -> str:
        running, queued = METRICS[self.settings["style"]]
        label = '{engine="0",model_name="mock"}' if self.settings["style"] != "llama.cpp" else ""
        return f"# TYPE x gauge\n{running}{label} {float(len(self.running))}\n{queued}{label} {len(self.queue)}\n"


class Generation:
    """One answer that is being streamed."""

    def __init__(self, engine: Engine, out: asyncio.Transport, asked: dict[str, Any], name: str, chat: bool) -> None:
        self.engine, self.out, self.name, self.chat = engine, out, name, chat
        self.number, self.length = 0, int(asked["max_tokens"])
        self.prompt = count_prompt(asked, chat)
        self.usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        self.times: list[tuple[float, float]] = []
        self.timer: asyncio.TimerHandle | None = None
        if engine.settings["keep_times"]:
            engine.times[name] = self.times

    def start(self) -> None:
        self.head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        self.due = asyncio.get_running_loop().time() + self.engine.settings["ttft"]
        if self.engine.settings["ttft"] or self.engine.settings["itl"]:
            self.timer = asyncio.get_running_loop().call_at(self.due, self.step)
        else:
            self.out.write(self.head)
            self.head = b""
            while not self.out.is_closing() and not self.step():
                pass

    def step(self) -> bool:
        """Sends one token; whether that was the last."""
        settings, self.number = self.engine.settings, self.number + 1
        last = self.number == self.length
        text = self.head + event(
            content(self.number, last, self.chat and self.head != b"", self.chat, settings["style"])
        )
        self.head = b""
        before = time.monotonic()
        self.out.write(text)
        self.times.append((before, time.monotonic()))
        faulty = self.engine.asked > settings["spare_requests"]
        if faulty and self.number == settings["cut_after"]:
            self.engine.leave(self)
            self.out.abort()
            return True
        if faulty and self.number == settings["error_after"]:
            self.out.write(
                event({"error": {"message": "the engine has died", "code": 500}}) + event(None) + b"0\r\n\r\n"
            )
            self.engine.leave(self)
            return True
        if last:
            usage = {"prompt_tokens": self.prompt, "completion_tokens": self.length}
            self.out.write((event({"choices": [], "usage": usage}) if self.usage else b"") + event(None) + b"0\r\n\r\n")
            self.engine.leave(self)
            if settings["close_after"] is not None:
                asyncio.get_running_loop().call_later(settings["close_after"], self.out.close)
            return True
        if settings["itl"] or settings["ttft"]:
            self.due = max(self.due + settings["itl"], asyncio.get_running_loop().time())
            self.timer = asyncio.get_running_loop().call_at(self.due, self.step)
        return False


def content(number: int, last: bool, first: bool, chat: bool, style: str) -> dict[str, Any]:
    """The event of one token. llama.cpp says in an event of its own that the answer is over: here with the last one."""
    reason = "length" if last else None
    common = {"id": "cmpl-0123456789abcdef", "created": 1700000000, "model": "mock"}
    if chat:
        delta = {"content": f" t{number}"}
        return {**common, "object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": reason}]}
    choice = {"index": 0, "text": f" t{number}", "logprobs": None, "finish_reason": reason}
    return {**common, "object": "text_completion", "choices": [choice]}


def event(said: dict[str, Any] | None) -> bytes:
    """One event in a chunk of its own; None is the end of a stream."""
    data = b"data: " + (json.dumps(said).encode() if said else b"[DONE]") + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def count_prompt(asked: dict[str, Any], chat: bool) -> int:
    """Token ids count as they are. A word of more than four letters is two tokens, and one token comes in front."""
    prompt = asked["messages"][0]["content"] if chat else asked["prompt"]
    if isinstance(prompt, list):
        return len(prompt)
    return 1 + sum(2 if len(word) > 4 else 1 for word in prompt.split())


class Connection(asyncio.Protocol):
    """Reads requests, one after the other."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.held = engine, b""
        self.generation: Generation | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.out = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self.generation:
            if self.generation.timer:
                self.generation.timer.cancel()
            self.engine.leave(self.generation)

    def data_received(self, data: bytes) -> None:
        self.held += data
        while b"\r\n\r\n" in self.held:
            head, _, rest = self.held.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers.get("content-length", 0))
            if len(rest) < length:
                return
            self.held = rest[length:]
            self.serve(first.split()[1], headers, rest[:length])

    def serve(self, asked_path: str, headers: dict[str, str], body: bytes) -> None:
        settings = self.engine.settings
        path, _, query = asked_path.partition("?")
        said = dict(pair.split("=") for pair in query.split("&") if pair)
        if settings["key"] and headers.get("authorization") != f"Bearer {settings['key']}":
            self.reply(401, {"error": {"message": "Unauthorized"}})
        elif path == "/v1/models":
            entry = {
                "id": settings["model"],
                "aliases": settings["aliases"],
                "owned_by": OWNED_BY.get(settings["style"], "me"),
            }
            entry |= {"max_model_len": settings["context"]} if settings["style"] in ("vllm", "sglang") else {}
            self.reply(200, {"object": "list", "data": [entry]})
        elif path == "/times":
            self.reply(200, self.engine.times)
        elif settings["router"] and path in ("/metrics", "/props", "/tokenize") and said != NAMED:
            self.reply(400, {"error": {"message": "model name is missing from the request"}})
        elif path == "/metrics" and settings["style"] in METRICS and settings["metrics"]:
            self.reply(200, self.engine.metrics())
            self.engine.metrics_asked += 1
            self.engine.admit()
        elif path == "/version" and settings["style"] == "vllm":
            self.reply(200, {"version": "0.0.1"})
        elif path == "/props" and settings["style"] == "llama.cpp":
            slot = {"n_ctx": settings["context"]}
            self.reply(200, {"default_generation_settings": slot, "build_info": settings["build"]})
        elif path == "/tokenize" and settings["style"] != "plain":
            asked = json.loads(body)
            words = asked["content" if settings["style"] == "llama.cpp" else "prompt"].split()
            self.reply(200, {"tokens": [100 + n % 3000 for n in range(len(words))], "count": len(words)})
        elif path in ("/v1/completions", "/v1/chat/completions"):
            self.complete(json.loads(body), headers.get("x-request-id", ""), path.startswith("/v1/chat"))
        else:
            self.reply(404, {"detail": "Not Found"})

    def complete(self, asked: dict[str, Any], name: str, chat: bool) -> None:
        engine = self.engine
        engine.asked += 1
        every = engine.settings["refuse_every"]
        spared = engine.asked <= engine.settings["spare_requests"]
        if not spared and (engine.settings["refuse_all"] or (every and engine.asked % every == 0)):
            self.reply(503, {"error": {"message": "the queue is full"}})
        elif engine.settings["hang"] and not spared:
            return
        elif engine.settings["style"] == "plain" and "ignore_eos" in asked:
            self.reply(400, {"error": {"message": "unknown field: ignore_eos"}})
        else:
            self.generation = Generation(engine, self.out, asked, name, chat)
            engine.take(self.generation)

    def reply(self, status: int, said: Any) -> None:
        body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.out.write(head.encode() + body)


async def serve(settings: dict[str, Any]) -> None:
    """Serves until the process is ended."""
    engine = Engine(settings)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", engine.settings["port"], backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
