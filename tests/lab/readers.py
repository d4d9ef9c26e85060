"""Clients that read answers of a rehearsed service while something happens to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tests.lab.fleet import Host, wait_for

STREAMS = 3


class Readers:
    """Clients on one machine of the service on another, or on the same. key: "" if the service wants none."""

    def __init__(self, serving: Host, reading: Host, key: str = "") -> None:
        self.serving, self.reading, self.pool = serving, reading, ThreadPoolExecutor(STREAMS)
        address = "127.0.0.1" if serving is reading else serving.machine.inner_address
        authorised = f"-H 'Authorization: Bearer {key}'" if key else ""
        self.ask = f"curl -sN {authorised} http://{address}:8000/v1/chat/completions"

    def begin(self, words: int) -> list[Future[str]]:
        """Begins as many answers of this many words, ten a second, as there are readers."""
        request = json.dumps({"stream": True, "max_tokens": words}, separators=(",", ":"))
        command = f"{self.ask} -d '{request}'"
        begun = [self.pool.submit(lambda: self.reading.machine.ssh(command).stdout) for _ in range(STREAMS)]
        count = "ss -Htn state established sport = :8000 | wc -l"
        wait_for(lambda: self.serving.tell(count) == str(STREAMS), "all answers to begin")
        return begun

    def close(self) -> None:
        """Waits for the readers to end."""
        self.pool.shutdown()


def all_whole(answers: Sequence[Future[str]], words: int) -> bool:
    """Whether every answer has all its words, in order, and its end."""
    return [_said(answer.result()) for answer in answers] == [
        [*map("word{} ".format, range(words)), "[DONE]"]
    ] * STREAMS


def _said(answer: str) -> list[str]:
    events = [line.removeprefix("data: ") for line in answer.splitlines() if line]
    return [event if event == "[DONE]" else json.loads(event)["choices"][0]["delta"]["content"] for event in events]
