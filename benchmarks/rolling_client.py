"""The clients of rolling.py; runs on the gateway's machine. Python's standard library only.

    rolling_client.py load CLIENTS PAUSE_S ADDRESS KEY             asks until STOP exists; prints what came back
    rolling_client.py ttft PAIRS THROUGH KEY DIRECT,DIRECT... KEY  milliseconds until the first word, in pairs

A grammar makes the engine say the same words each time.

What may come of a request: "ok", every word and the end as they must be. "truncated": the answer had begun and broke
off with an error, as a connection that ends early or an event {"error": ...}, and without [DONE]. "false end": it is
not whole, but ends as if it were. Anything else failed before an answer began: "status 503", "ConnectionResetError".
"""

from __future__ import annotations

import collections
import http.client
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m-instruct"
TEXT = "one two three four five six seven eight nine ten"
STOP = Path("/run/enough")
TIMEOUT_S = 120
FAULTS = (OSError, http.client.HTTPException)


class Link:
    """A connection that is kept for as long as the other side keeps it."""

    def __init__(self, address: str, key: str) -> None:
        self.connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        self.key = key

    def ask(self, stream: bool, tokens: int) -> http.client.HTTPResponse:
        """The answer's head."""
        question = {"messages": [{"role": "user", "content": "Count."}], "grammar": f'root ::= "{TEXT}"'}
        body = json.dumps({**question, "max_tokens": tokens, "stream": stream, "model": MODEL}, separators=(",", ":"))
        head = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        self.connection.request("POST", "/v1/chat/completions", body, head)
        return self.connection.getresponse()

    def close(self) -> None:
        """The next request makes another connection."""
        self.connection.close()


def events(reply: http.client.HTTPResponse) -> Any:
    """The data of a stream's events. Raises FAULTS if it breaks off, which readline of a reply would hide."""
    rest = b""
    while piece := reply.read1(65536):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line[6:].strip() for line in lines if line.startswith(b"data: "))


def result_of(reply: http.client.HTTPResponse, stream: bool) -> str:
    """What came of an answer with status 200."""
    said, why, done = "", None, False
    try:
        if not stream:
            choice = json.loads(reply.read())["choices"][0]
            said, why, done = choice["message"]["content"], choice["finish_reason"], True
        else:
            for data in events(reply):
                if data == b"[DONE]":
                    done = True
                    continue
                event = json.loads(data)
                if "error" in event:
                    why = "error"
                elif event["choices"]:
                    choice = event["choices"][0]
                    why = choice["finish_reason"] or why
                    said += choice["delta"].get("content") or ""
    except FAULTS:
        if not done:
            return "truncated"
    except (ValueError, KeyError):
        return "false end"
    if (said, why, done) == (TEXT, "stop", True):
        return "ok"
    return "truncated" if why == "error" and not done else "false end"


class Load:
    """Clients that ask again a while after each answer, half of them streaming."""

    def __init__(self, clients: int, pause: float, address: str, key: str) -> None:
        self.pause, self.address, self.key = pause, address, key
        self.seen: collections.Counter[str] = collections.Counter()
        self.longest = 0.0
        self.truncated_began: list[float] = []
        self.threads = [threading.Thread(target=self.client, args=(number % 2 == 0,)) for number in range(clients)]

    def client(self, stream: bool) -> None:
        """Asks until it is enough."""
        link = Link(self.address, self.key)
        while not STOP.exists():
            began = time.monotonic()
            try:
                reply = link.ask(stream, 50)
                head = time.time()
                if reply.status == 200:
                    result = result_of(reply, stream)
                else:
                    reply.read()
                    result = f"status {reply.status}"
            except FAULTS as error:
                result = type(error).__name__
            if result != "ok":
                link.close()
            if result == "truncated":
                self.truncated_began.append(head)
            self.seen[result] += 1
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(self.pause)

    def run(self) -> dict[str, Any]:
        """What they have seen. truncated_began: when the heads of truncated answers came, in seconds since 1970."""
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        return {"seen": self.seen, "longest_s": round(self.longest, 1), "truncated_began": self.truncated_began}


def first_word(link: Link) -> float:
    """Milliseconds until the first word of a stream, which is read to its end."""
    link.close()  # the engine ends a connection after a stream; the gateway is to have no advantage by keeping one
    began, first = time.perf_counter(), 0.0
    for data in events(link.ask(True, 3)):
        if not first and data != b"[DONE]" and json.loads(data)["choices"][0]["delta"].get("content"):
            first = time.perf_counter() - began
    if not first:
        sys.exit("a stream without words")
    return first * 1000


def pairs(count: int, through: Link, direct: list[Link]) -> list[tuple[float, float]]:
    """(direct, through) in turn, each first every other time; the engines' own addresses take turns."""
    found = []
    for number in range(count):
        one, both = direct[number // 2 % len(direct)], {}
        for what in (("direct", "through"), ("through", "direct"))[number % 2]:
            both[what] = first_word(through if what == "through" else one)
        found.append((both["direct"], both["through"]))
    return found


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "load":
        print(json.dumps(Load(int(words[0]), float(words[1]), *words[2:]).run()))
    else:
        direct = [Link(address, words[4]) for address in words[3].split(",")]
        print(json.dumps(pairs(int(words[0]), Link(words[1], words[2]), direct)))
