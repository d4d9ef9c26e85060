"""What the measuring program says, line by line, put together into one result."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rigup.errors import HostFailed
from rigup.verify.bench_client import Wanted, failure

SCHEMA = 1
# a client that is later than that at a hundredth of what arrives may itself be what limits throughput
LATE_MS = 20.0
BUSY = 0.9


class Collected:
    """Takes lines as they come. where: in front of messages, "gpu1.lan: chat: ". show: is given progress."""

    def __init__(self, where: str, show: Callable[[dict[str, Any]], None]) -> None:
        self._where, self._show = where, show
        self._began = datetime.now(UTC)
        self.endpoint: dict[str, Any] = {}
        self.levels: list[dict[str, Any]] = []
        self.left_out: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None

    def take(self, line: str) -> None:
        """One line; what is none of the program's is passed over. Raises what the program ended with."""
        try:
            said = json.loads(line)
        except ValueError:
            return
        if not isinstance(said, dict):
            return
        if "error" in said:
            raise failure(said["error"], self._where)
        if "progress" in said:
            self._show(said["progress"])
        self.endpoint = said.get("endpoint", self.endpoint)
        self.end = said.get("end", self.end)
        self.levels += [said["level"]] if "level" in said else []
        self.left_out += [said["left_out"]] if "left_out" in said else []

    def result(self, wanted: Wanted, about: dict[str, Any], last_words: str = "") -> dict[str, Any]:
        """All of it. about: what was measured, as the caller knows it. last_words: of a program that ended too early.

        Raises HostFailed where not even one level was measured.
        """
        if self.end is None and not self.levels:
            raise HostFailed(f"{self._where}the benchmark ended early: {last_words or 'without a word'}")
        end = self.end or {"complete": False, "why": last_words or "the connection was lost", "client": {}}
        made = {
            "schema": SCHEMA,
            **about,
            "endpoint": self.endpoint,
            "began": self._began.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "ended": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "complete": end["complete"],
            "why": end["why"],
            "client": end["client"],
            "warmup": wanted.warmup,
            "left_out": self.left_out,
            "levels": self.levels,
        }
        return {**made, "notes": notes(made)}


def notes(result: dict[str, Any]) -> list[str]:
    """What whoever reads the figures should know."""
    found, endpoint = [], result["endpoint"]
    if not result["complete"]:
        found.append(f"not complete: {result['why']}")
    found += [f"{entry['input']} tokens of prompt left out: {entry['why']}" for entry in result["left_out"]]
    if not endpoint.get("ignores_eos", True):
        found.append("the endpoint takes no ignore_eos: answers may be shorter than asked for")
    if not endpoint.get("counts_tokens", True):
        found.append("the endpoint counts no tokens: each event of a stream is taken for one")
    if endpoint.get("prompts") == "words, not counted":
        found.append("no way was found to make prompts of exact length: a word is taken for one token")
    for level in result["levels"]:
        found += [f"{level['concurrency']} at once: {text}" for text in _of_level(level)]
    return found


def _of_level(level: dict[str, Any]) -> list[str]:
    found = []
    engine, client, prompts = level["engine"], level["client"], level["prompt_tokens"]
    if not level["complete"]:
        found.append("broken off, these figures are of what had been measured by then")
    if engine and engine["capped"]:
        found.append(f"the engine ran at most {engine['running_most']} and queued {engine['queued']:.0f}: capped there")
    if prompts and (prompts["least"], prompts["most"]) != (level["input"], level["input"]):
        found.append(f"prompts had {prompts['least']} to {prompts['most']} tokens, not {level['input']}")
    if client["busy"] > BUSY and (client["late_ms"] or {}).get("p99", LATE_MS) >= LATE_MS:
        found.append(f"the client was busy {client['busy']:.0%} of the time: it may be what limits the throughput")
    return found
