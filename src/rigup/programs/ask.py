"""Runs on a host: sends its service a real request and prints the reply as one line of JSON.

usage: ask.py REQUEST.json     (or - for standard input)

The request: {"url", "health", "model", "question", "max_tokens", "key_file", "unit", "wait_s", "timeout_s"}.
"expected" says what the answer must be, by model: {"service": its name, "answer": a word that must be in it, or "" for
none}; and it must not be the same over and over. A model that is not in it may say anything.
With "swaps": true, a service whose models take turns is asked for the one that is resident, if any; "model" of the
reply is its name.
The reply: {"state": "answered", "answer", "reasoning", "tokens", "seconds", "tokens_per_second"},
or {"state": "starting" | "failed", "why"}.
"starting" means that the caller should ask again.

Root reads the key and checks which unit owns the port (`listeners.py`); a process without privileges sends the request.
Needs http_reader.py, listeners.py and unprivileged.py in its folder. Python 3.11 standard library only.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from typing import Any

if __package__:
    from rigup.programs.http_reader import exchange, parsed, printable
    from rigup.programs.listeners import ForeignPort, UnitPort
    from rigup.programs.unprivileged import output_of
else:
    sys.dont_write_bytecode = True
    from http_reader import exchange, parsed, printable  # type: ignore[import-not-found, no-redef]
    from listeners import ForeignPort, UnitPort  # type: ignore[import-not-found, no-redef]
    from unprivileged import output_of  # type: ignore[import-not-found, no-redef]

COMPLETIONS = "/v1/chat/completions"
MODELS = "/v1/models"
CONNECT_SECONDS = 5
HEALTH_SECONDS = 5
# a response arrives in one piece once it is generated
BODY_SECONDS = 20
RESIDENT = ("loaded", "loading", "sleeping")
MOST_KEY = 1 << 14
MOST_TEXT = 1 << 16
MOST_REPLY = 1 << 20
MOST_TOKENS = 1 << 40
SHOWN_CHARACTERS = 120
# Of a text that only repeats itself; JUDGED_TOKENS of health.py are some 250 characters of Latin script.
LONGEST_PIECE = 48
LEAST_TIMES, FEWER_TIMES = 16, 4
LEAST_REPEATED = 120
LEAST_SENTENCE = 24
SENTENCE_ENDS = ".!?\u3002\uff01\uff1f"
FIRST_IDEOGRAPH, LETTERS_OF_IDEOGRAPH = "\u2e80", 3
LEAST_WORDS, FEW_WORDS = 24, 4

Reply = dict[str, Any]


class HealthTarget:
    """One service of this host. url: "http://host:port". unit: the systemd unit that must own that port."""

    def __init__(self, url: str, unit: str) -> None:
        self._netloc = url.removeprefix("http://")
        host, _, port = self._netloc.rpartition(":")
        self._host, self._number = host.strip("[]"), int(port)
        self._port = UnitPort(unit)

    def healthy(self, path: str) -> bool:
        """Whether /health returns 200; necessary but not sufficient. Raises Stranger."""
        try:
            reply = self._exchange(
                self._request("GET", path), HEALTH_SECONDS, lambda status, body, _: {"status": status}
            )
        except ForeignPort:
            raise
        except OSError:
            return False
        return reply.get("status") == 200

    def resident(self, key_file: str | None) -> str:
        """The name of the model that is loaded or being loaded; "" for none, or if the service does not say."""
        try:
            headers = [f"Authorization: Bearer {_key(key_file)}"] if key_file else []
            found = self._exchange(self._request("GET", MODELS, *headers), HEALTH_SECONDS, resident_of)
        except (OSError, ValueError):
            return ""
        return str(found.get("model", ""))

    def complete(self, key_file: str | None, body: bytes, seconds: float) -> Reply:
        """Sends one chat completion and returns the reply."""
        try:
            headers = [f"Authorization: Bearer {_key(key_file)}"] if key_file else []
            request = self._request("POST", COMPLETIONS, *headers, body=body)
            return self._exchange(request, seconds, reply_to)
        except (OSError, ValueError) as error:
            return _failed(str(error) if isinstance(error, ForeignPort) else f"unexpected response: {error}")

    def _request(self, method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._netloc}", "Connection: close", *headers]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
        return "\r\n".join([*lines, "", ""]).encode() + body

    def _exchange(self, request: bytes, seconds: float, read: Any) -> Reply:
        """Sends a request; `read` makes a reply from status, body and seconds. Raises OSError."""
        with self._port.connect(self._host, self._number, min(seconds, CONNECT_SECONDS)) as connection:

            def converse() -> bytes:
                began = time.monotonic()
                try:
                    response, _ = exchange(connection, request, seconds, BODY_SECONDS)
                    reply = read(response.status, response.body, time.monotonic() - began)
                except (OSError, ValueError, MemoryError) as error:
                    reply = _failed(f"unexpected response: {error}")
                return json.dumps(reply).encode()

            output = output_of(converse, seconds + BODY_SECONDS, MOST_REPLY)
        reply: Reply = json.loads(output) if output else _failed("unexpected response: too slow or too large")
        return reply


def _key(path: str) -> str:
    with open(path) as file:
        key = file.read(MOST_KEY).strip()
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"{path} contains characters that are invalid in a key")
    return key


def _failed(why: str) -> Reply:
    return {"state": "failed", "why": printable(why)}


def unit_state(unit: str) -> tuple[str, int]:
    """The unit's state, and the number of restarts since it was started."""
    words = ["systemctl", "show", unit, "--property=ActiveState,NRestarts"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=20).stdout
    found = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    return found.get("ActiveState", "unknown"), int(found.get("NRestarts") or 0)


def _body(request: dict[str, Any]) -> bytes:
    """The request body: a chat completion at temperature 0."""
    body = {
        "model": request["model"],
        "messages": [{"role": "user", "content": request["question"]}],
        "max_tokens": request["max_tokens"],
        "temperature": 0,
    }
    return json.dumps(body).encode()


def reply_to(status: int, body: bytes, seconds: float) -> Reply:
    """Converts a response into a reply. Raises ValueError if its status is 200 but it is not a completion."""
    if status != 200:
        state = "starting" if status == 503 else "failed"
        return {"state": state, "why": f"HTTP {status}: {printable(body.decode(errors='replace'))}"}
    answer = parsed(body)
    choices = _field(answer, "choices", list) or [None]
    message = _field(choices[0], "message", dict)
    text = _text(message, "content")
    reasoning = _text(message, "reasoning_content") or _text(message, "reasoning")
    tokens = _field(_field(answer, "usage", dict), "completion_tokens", int)
    if not 0 < tokens < MOST_TOKENS or not (text or reasoning):
        raise ValueError("the answer is empty")
    timings = answer.get("timings")
    measured = timings.get("predicted_per_second") if isinstance(timings, dict) and tokens > 1 else None
    speed = tokens / max(seconds, 1e-6)
    if isinstance(measured, int | float) and 0 < measured < MOST_TOKENS and math.isfinite(measured):
        speed = measured
    return {
        "state": "answered",
        "answer": text,
        "reasoning": reasoning,
        "tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(speed, 2),
    }


def resident_of(status: int, body: bytes, _: float) -> Reply:
    """The resident model in what llama-server's router says of all of them: its alias, if it has one."""
    models = _field(parsed(body), "data", list) if status == 200 else []
    for model in models:
        state = _field(model, "status", dict).get("value")
        if state in RESIDENT:
            name = next(iter(_field(model, "aliases", list)), None) or _field(model, "id", str)
            return {"model": printable(str(name))}
    return {}


def _field(content: Any, name: str, kind: Any) -> Any:
    """A field of a JSON object. Raises ValueError if it is missing or of another type."""
    found = content.get(name) if isinstance(content, dict) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"{name} is missing or invalid")
    return found


def _text(message: dict[str, Any], name: str) -> str:
    found = message.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{name} is not text")
    return (found or "")[:MOST_TEXT].encode(errors="replace").decode()  # lone surrogates are not characters


def repeated(text: str) -> str:
    """What a text does nothing but repeat, as a model does for ever whose figures are wrong; "" if it does not.

    Either its last piece, over and over for more than half of it: up to LONGEST_PIECE characters of no whole sentence,
    at least LEAST_TIMES, or FEWER_TIMES if that makes LEAST_REPEATED characters. Or a few words in any order.
    """
    squeezed = " ".join(text.split())
    if not squeezed:
        return " " if len(text) >= LEAST_TIMES else ""
    for length in range(1, min(LONGEST_PIECE, len(squeezed) // FEWER_TIMES) + 1):
        piece, times = squeezed[-length:], 1
        while squeezed.endswith(piece, 0, len(squeezed) - times * length):
            times += 1
        enough = times >= LEAST_TIMES or (times >= FEWER_TIMES and times * length >= LEAST_REPEATED)
        if enough and 2 * times * length >= len(squeezed) and not _is_sentence(piece):
            return piece.strip()
    words = squeezed.casefold().split(" ")
    few = sorted(set(words)) if len(words) >= LEAST_WORDS else ()
    return " ".join(few) if 0 < len(few) <= FEW_WORDS else ""


def _is_sentence(piece: str) -> bool:
    """Whether a loop is one over a whole sentence: a base model says a right one again and again."""
    letters = sum(LETTERS_OF_IDEOGRAPH if character >= FIRST_IDEOGRAPH else 1 for character in piece)
    return letters > LEAST_SENTENCE and any(mark in piece for mark in SENTENCE_ENDS)


def judged(reply: Reply, question: str, expected: dict[str, str] | None) -> Reply:
    """A reply with an answer, failed if that is not the expected one. The model's thoughts count if it gave no answer.

    expected: see "expected" above; None for whatever may come.
    """
    if expected is None or reply["state"] != "answered":
        return reply
    text = reply["answer"] if reply["answer"].strip() else reply["reasoning"] or reply["answer"]
    word, service = expected["answer"], expected["service"]
    if word and word.casefold() not in text.casefold():
        problem = f'without "{word}"'
    elif piece := repeated(text):
        problem = f'"{piece}" over and over'
    else:
        problem = "" if text.strip() else "nothing but white space"
    if not problem:
        return reply
    said = " ".join(text.split())[:SHOWN_CHARACTERS]
    return _failed(f'asked "{question}", it answered "{said}", {problem} (services.{service}.expected_answer)')


def ask(request: dict[str, Any]) -> Reply:
    """Waits up to wait_s for the endpoint, then sends the request and judges the answer."""
    target = HealthTarget(request["url"], request["unit"])
    deadline = time.monotonic() + request["wait_s"]
    try:
        while not target.healthy(request["health"]):
            state, restarts = unit_state(request["unit"])
            if state in ("failed", "inactive"):
                return _failed(f"the unit is {state}")
            if restarts >= 2:
                return _failed(f"systemd had to restart it {restarts} times")
            if time.monotonic() > deadline:
                return {"state": "starting", "why": "/health does not return 200 yet"}
            time.sleep(0.2)
    except ForeignPort as error:
        return _failed(str(error))
    model, swaps = request["model"], bool(request.get("swaps"))
    if swaps:
        model = target.resident(request["key_file"]) or model
    reply = target.complete(request["key_file"], _body(request | {"model": model}), request["timeout_s"])
    reply = judged(reply, request["question"], request.get("expected", {}).get(model))
    return reply | ({"model": model} if swaps and reply["state"] == "answered" else {})


def main(source: str = "-") -> None:
    """Reads a request and prints the reply."""
    with sys.stdin if source == "-" else open(source) as file:
        print(json.dumps(ask(json.load(file))))


if __name__ == "__main__":
    main(*sys.argv[1:])
