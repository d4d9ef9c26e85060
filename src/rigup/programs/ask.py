"""Runs on a host: asks the service there a real question, and says in one line of JSON what came back.

usage: ask.py REQUEST.json     (or - for standard input)

The request: {"url", "health", "model", "question", "max_tokens", "key_file", "unit", "wait_s", "timeout_s"}.
The answer: {"state": "answered", "answer", "reasoning", "tokens", "seconds", "tokens_per_second"},
or {"state": "starting" | "failed", "why"}.
"starting" means that asking again makes sense. Python 3.10 standard library only.
"""

from __future__ import annotations

import _socket  # what socket adds takes a host as long to import as Python to start
import sys
import time

TYPE_CHECKING = False  # each import counts: it runs on every host at every apply
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 16
COMPLETIONS = "/v1/chat/completions"
EARLY, EARLY_SECONDS = "##rigup-early##", 5
REMEMBERED = "#ask"
UNUSABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What `complete` raises where there is no answer, beside HTTPError."""


class HTTPError(Exception):
    """An answer with another status than 200."""


def call(address: str, path: str, timeout: float, body: bytes | None = None, **headers: str) -> bytes:
    """GETs, or with a body POSTs, from "http://host:port"; raises OSError, ValueError for no HTTP, or HTTPError.

    By hand, and HTTP/1.0, whose answers end with the connection: http.client takes longer to import than all else here.
    """
    host, _, port = address.removeprefix("http://").rpartition(":")
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.0", f"Host: {host}:{port}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [] if body is None else ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    connection = _connected(host.strip("[]"), int(port), timeout)
    try:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        answer = b"".join(iter(lambda: connection.recv(CHUNK), b""))
    finally:
        connection.close()
    head, found, said = answer.partition(b"\r\n\r\n")
    if not (found and head.startswith(b"HTTP/1.")):
        raise ValueError("what came back is not HTTP")
    if (status := int(head.split(maxsplit=2)[1])) != 200:
        raise HTTPError(status, said.decode(errors="replace")[:300])
    return said


def _connected(host: str, port: int, timeout: float) -> _socket.socket:
    failed = OSError(f"{host} has no address")
    # in bytes: for text Python imports all that it takes to encode a name
    for family, kind, protocol, _, address in _socket.getaddrinfo(host.encode(), port, 0, _socket.SOCK_STREAM):
        connection = _socket.socket(family, kind, protocol)
        try:
            connection.settimeout(timeout)
            connection.connect(address)
            return connection
        except OSError as error:
            connection.close()
            failed = error
    raise failed


def unit_state(unit: str) -> tuple[str, int]:
    """The unit's state, and how often systemd has restarted it since it was started."""
    import subprocess

    shown = subprocess.run(
        ["systemctl", "show", unit, "--property=ActiveState,NRestarts"], capture_output=True, text=True, timeout=20
    ).stdout
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return found.get("ActiveState", "unknown"), int(found.get("NRestarts") or 0)


def healthy(request: dict[str, Any]) -> bool:
    """Whether the endpoint says that it is ready: necessary, and not enough."""
    try:
        call(request["url"], request["health"], timeout=5)
    except (OSError, ValueError, HTTPError):
        return False
    return True


def complete(request: dict[str, Any]) -> dict[str, Any]:
    """One chat completion at temperature 0; raises HTTPError, or one of UNUSABLE when it is not one."""
    began = time.monotonic()
    said = _completion(request["url"], request["key_file"], body_of(request), request["timeout_s"])
    return answer_in(said, time.monotonic() - began)


def body_of(request: dict[str, Any]) -> str:
    """What is sent to the service, in a line."""
    import json

    body = {
        "model": request["model"],
        "messages": [{"role": "user", "content": request["question"]}],
        "max_tokens": request["max_tokens"],
        "temperature": 0,
    }
    return json.dumps(body)


def _completion(url: str, key_file: str | None, body: str, timeout: float) -> bytes:
    headers = {}
    if key_file:
        with open(key_file) as file:
            headers["Authorization"] = "Bearer " + file.read().strip()
    return call(url, COMPLETIONS, timeout, body.encode(), **headers)


def answer_in(said: bytes, seconds: float) -> dict[str, Any]:
    """What `ask` returns of a completion that came after `seconds`; raises one of UNUSABLE when it is not one."""
    import json

    answer = json.loads(said)
    message = answer["choices"][0]["message"]
    text, reasoning = message.get("content") or "", message.get("reasoning_content") or message.get("reasoning") or ""
    tokens = int(answer["usage"]["completion_tokens"])
    if tokens < 1 or not (text or reasoning):
        raise ValueError("the answer is empty")
    measured = (answer.get("timings") or {}).get("predicted_per_second") if tokens > 1 else None
    speed = float(measured) if measured else tokens / seconds
    return {
        "state": "answered",
        "answer": text,
        "reasoning": reasoning,
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(speed, 2),
    }


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """Waits up to wait_s for the endpoint, then asks."""
    deadline = time.monotonic() + request["wait_s"]
    while not healthy(request):
        state, restarts = unit_state(request["unit"])
        if state in ("failed", "inactive"):
            return {"state": "failed", "why": f"the unit is {state}"}
        if restarts >= 2:
            return {"state": "failed", "why": f"systemd had to restart it {restarts} times"}
        if time.monotonic() > deadline:
            return {"state": "starting", "why": "it does not say that it is healthy yet"}
        time.sleep(0.2)
    try:
        return complete(request)
    except HTTPError as error:
        status, told = error.args
        return {"state": "starting" if status == 503 else "failed", "why": f"HTTP {status}: {told}"}
    except UNUSABLE as error:
        return {"state": "failed", "why": f"no usable answer: {type(error).__name__}: {error}"}


def early_question(request: dict[str, Any]) -> str:
    """What `ask_early` has to know of a request, in a line."""
    return f"{request['url']} {request['key_file'] or '-'} {body_of(request)}"


def ask_early(path: str) -> None:
    """Asks services while their host is still being looked at; a line for each: EARLY, a name, seconds, what it said.

    path: of a file with lines of REMEMBERED, a name and an `early_question`; other lines are somebody else's. Nobody
    waits for long, and of what has not answered there is just the name: whoever has the time, or wants to know why,
    asks again. Reading JSON is left to whoever reads this: to import what can takes a host longer than to ask.
    """
    import os

    with open(path) as file:
        remembered = [line.rstrip("\n").split(" ", 4)[1:] for line in file if line.startswith(f"{REMEMBERED} ")]
    for name, url, key_file, body in remembered:
        began, said = time.monotonic(), ""
        try:
            found = _completion(url, key_file if key_file != "-" else None, body, EARLY_SECONDS)
            said = f"{time.monotonic() - began:.6f} {' '.join(found.decode().split(chr(10)))}"
        except (HTTPError, *UNUSABLE):
            pass
        os.write(1, f"{EARLY} {name} {said}\n".encode())  # whole: somebody else writes there too


if __name__ == "__main__":
    import json

    source = sys.argv[1] if len(sys.argv) > 1 else "-"
    with sys.stdin if source == "-" else open(source) as file:
        print(json.dumps(ask(json.load(file))))
