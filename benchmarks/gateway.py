"""What clients see while engines behind a gateway are replaced one after another.

    python benchmarks/gateway.py --stop told                  HAProxy as rigup configures it
    python benchmarks/gateway.py --stop drain --gateway nginx
    python benchmarks/gateway.py --engines 1 --hold 60 --load 5
    python benchmarks/gateway.py --latency                    a tiny call and the first event, direct and through
    python benchmarks/gateway.py --many                       memory with 2,000 idle connections and 500 streams

Everything runs on loopback with stand-in engines: a stream of 20 words in 2 s, or the same as one answer after 2 s.
--stop abort: an engine dies on SIGTERM (vLLM's default). drain: it ends what is in flight first. told: the gateway is
told first, and the engine stopped when nothing is in flight. Answers are checked word by word. Needs haproxy (nginx)
and Linux; ends with 1 if a request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import smallest  # noqa: E402
from benchmarks.gateway_contenders import MODEL, PORT, Haproxy, Nginx  # noqa: E402

FIRST_ENGINE = 9101
WORDS, GAP = 20, 0.1
EVENTS = [f"data: {json.dumps({'choices': [{'delta': {'content': f'w{i} '}}]})}\n\n" for i in range(WORDS)]
WHOLE = {"choices": [{"message": {"content": "".join(f"w{i} " for i in range(WORDS))}}]}


class Engine:
    """A stand-in for an engine, in a process of its own. load: seconds for which it listens and answers 503."""

    def __init__(self, port: int, drains: bool, load: float) -> None:
        self.port, self.drains = port, drains
        self.ready_at = time.monotonic() + load
        self.in_flight, self.stopping = 0, asyncio.Event()

    async def run(self) -> None:
        """Serves until SIGTERM."""
        if self.drains:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        await asyncio.start_server(self.connection, "127.0.0.1", self.port, backlog=1024)
        await self.stopping.wait()
        while self.in_flight:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.05)
        os._exit(0)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
                )
                await self.reply(head, await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def reply(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> None:
        """Answers one request."""
        away = self.stopping.is_set() or time.monotonic() < self.ready_at
        if head.startswith(b"GET /in-flight"):
            return await _whole(writer, 200, self.in_flight)
        if away or head.startswith(b"GET"):
            return await _whole(writer, 503 if away else 200, {"error": {"message": "away"}})
        self.in_flight += 1
        try:
            asked = json.loads(body)
            if asked.get("tiny"):
                await _whole(writer, 200, {})
            elif asked.get("stream"):
                await _stream(writer)
            else:
                await asyncio.sleep(WORDS * GAP)
                await _whole(writer, 200, WHOLE)
        finally:
            self.in_flight -= 1


async def _whole(writer: asyncio.StreamWriter, status: int, content: Any) -> None:
    text = json.dumps(content).encode()
    writer.write(b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(text)))
    writer.write(text)
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for event in (*EVENTS, "data: [DONE]\n\n"):
        await asyncio.sleep(GAP if event in EVENTS else 0)
        writer.write(b"%x\r\n%s\r\n" % (len(event), event.encode()))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


class Load:
    """Clients on connections that they keep, half of them streaming, and what they have seen."""

    def __init__(self, clients: int) -> None:
        self.seen: collections.Counter[str] = collections.Counter()
        self.longest, self.enough = 0.0, threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(number % 2 == 0,)) for number in range(clients)]

    def client(self, stream: bool) -> None:
        """Asks until it is enough."""
        link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
        while not self.enough.is_set():
            began = time.monotonic()
            try:
                result = ask(link, stream)
            except (OSError, http.client.HTTPException, ValueError) as error:
                result = type(error).__name__
                link.close()
            self.seen[result] += 1
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(0.1 if result != "ok" else 0)


def ask(link: http.client.HTTPConnection, stream: bool) -> str:
    """One request: "ok", or what was wrong with the answer."""
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": stream, "model": MODEL})
    link.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = link.getresponse()
    text = reply.read().decode()
    if reply.status != 200:
        return f"status {reply.status}"
    whole = text == "".join(EVENTS) + "data: [DONE]\n\n" if stream else json.loads(text) == WHOLE
    return "ok" if whole else "truncated"


def get(port: int, path: str) -> tuple[int, str]:
    """Status and text of an engine's answer; (0, "") without one."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        link.request("GET", path)
        reply = link.getresponse()
        return reply.status, reply.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        link.close()


def wait(condition: Any, what: str) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within 120 s: {what}")
        time.sleep(0.05)


def start(port: int, arguments: argparse.Namespace, load: float) -> subprocess.Popen[bytes]:
    """Starts an engine."""
    words = [sys.executable, __file__, "--engine", str(port), "--stop", arguments.stop, "--load", str(load)]
    return subprocess.Popen(words)


def resident_mib(process: subprocess.Popen[bytes]) -> float:
    """Resident memory of a process."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def roll(gateway: Any, engines: dict[int, subprocess.Popen[bytes]], arguments: argparse.Namespace) -> None:
    """Replaces one engine after another."""
    time.sleep(2)
    for port in engines:
        if arguments.stop == "told":
            gateway.drain(port)
            wait(lambda port=port: get(port, "/in-flight")[1] == "0", "nothing in flight")
        engines[port].send_signal(signal.SIGTERM)
        engines[port].wait()
        engines[port] = start(port, arguments, arguments.load)
        wait(lambda port=port: get(port, "/health")[0] == 200, "the engine is ready")
        if arguments.stop == "told":
            gateway.ready(port)
        wait(lambda port=port: gateway.is_up(port), "the gateway has seen it")
        time.sleep(1)


def latency(arguments: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a tiny call and until the first event, direct and through the gateway."""
    found = {}
    for name, port in (("direct", FIRST_ENGINE), ("through", PORT)):
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        tiny, first = [], []
        for number in range(arguments.calls):
            began = time.perf_counter()
            link.request("POST", "/v1/chat/completions", json.dumps({"tiny": True, "text": "x" * 4000, "model": MODEL}))
            link.getresponse().read()
            tiny.append(time.perf_counter() - began)
            if number % 60 == 0:
                began = time.perf_counter()
                link.request("POST", "/v1/chat/completions", json.dumps({"stream": True, "model": MODEL}))
                reply = link.getresponse()
                reply.read(1)
                first.append(time.perf_counter() - began - GAP)
                reply.read()
        found[f"{name}_ms"] = round(statistics.median(tiny) * 1000, 2)
        found[f"{name}_first_event_ms"] = round(statistics.median(first) * 1000, 2)
    return found


def many(gateway: Any, idle: int, streams: int) -> dict[str, float]:
    """Resident memory of the gateway with idle connections, and with streams on top."""
    found = {"mib": round(resident_mib(gateway.process), 1)}
    links = [http.client.HTTPConnection("127.0.0.1", PORT, timeout=60) for _ in range(idle)]
    for link in links:
        link.request("GET", "/v1/models")
        link.getresponse().read()
    found["mib_idle"] = round(resident_mib(gateway.process), 1)
    load = Load(streams)
    load.threads = [threading.Thread(target=load.client, args=(True,)) for _ in range(streams)]
    for thread in load.threads:
        thread.start()
    time.sleep(6)
    found["mib_streams"] = round(resident_mib(gateway.process), 1)
    load.enough.set()
    for thread in load.threads:
        thread.join()
    return {**found, "failed": sum(load.seen.values()) - load.seen["ok"], "requests": sum(load.seen.values())}


def main() -> int:
    """Measures and prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", choices=("haproxy", "nginx"), default="haproxy")
    parser.add_argument("--stop", choices=("abort", "drain", "told"), default="told")
    parser.add_argument("--engines", type=int, default=3)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--hold", type=int, default=0)
    parser.add_argument("--load", type=float, default=2.0, help="seconds for which a new engine answers 503")
    parser.add_argument("--latency", action="store_true")
    parser.add_argument(
        "--calls", type=int, default=600, help="tiny ones, with --latency; one of 60 has a stream behind it"
    )
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--idle", type=int, default=2000, help="connections without requests, with --many")
    parser.add_argument("--streams", type=int, default=500, help="with --many")
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    few = "--engines 2 --clients 2 --load 0.2 --calls 20 --idle 20 --streams 4"
    arguments = smallest.arguments(parser, few)
    if arguments.engine:
        asyncio.run(Engine(arguments.engine, arguments.stop == "drain", arguments.load).run())
    ports = [FIRST_ENGINE + number for number in range(arguments.engines)]
    engines = {port: start(port, arguments, 0) for port in ports}
    with tempfile.TemporaryDirectory() as folder:
        wait(lambda: all(get(port, "/health")[0] == 200 for port in ports), "every engine is ready")
        kind: type[Haproxy | Nginx] = Haproxy if arguments.gateway == "haproxy" else Nginx
        gateway = kind(Path(folder), ports, arguments.hold)
        try:
            wait(lambda: _answers() and all(gateway.is_up(port) for port in ports), "the gateway answers")
            result = _measured(gateway, engines, arguments)
        finally:
            gateway.process.terminate()
            gateway.process.wait()
            for process in engines.values():
                process.kill()
    print(json.dumps({"gateway": arguments.gateway, "stop": arguments.stop, "hold": arguments.hold, **result}))
    return 1 if result.get("failed") else 0


def _answers() -> bool:
    try:
        with socket.create_connection(("127.0.0.1", PORT), timeout=1):
            return True
    except OSError:
        return False


def _measured(
    gateway: Any, engines: dict[int, subprocess.Popen[bytes]], arguments: argparse.Namespace
) -> dict[str, Any]:
    if arguments.latency:
        return dict(latency(arguments))
    if arguments.many:
        return dict(many(gateway, arguments.idle, arguments.streams))
    load = Load(arguments.clients)
    for thread in load.threads:
        thread.start()
    try:
        roll(gateway, engines, arguments)
    finally:
        load.enough.set()
        for thread in load.threads:
            thread.join()
    bad = {result: number for result, number in load.seen.items() if result != "ok"}
    return {
        "requests": sum(load.seen.values()),
        "failed": sum(bad.values()),
        "seen": bad,
        "longest_s": round(load.longest, 1),
        "mib": round(resident_mib(gateway.process), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
