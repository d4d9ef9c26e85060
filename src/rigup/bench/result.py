"""Collects the output lines of the benchmark client into one result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from rigup.bench.client import BenchRequest, failure
from rigup.bench.lines import MOST_LEVELS, read_line
from rigup.errors import HostFailed
from rigup.operations.primitives.progress import Progress, report

SCHEMA = 1
# a client with more lateness at p99 may itself limit the throughput
LATE_MS = 20.0
BUSY = 0.9


class LineCollector:
    """Takes lines as they arrive. where: prefix of messages, "gpu1.lan: chat: ". show: called with progress."""

    def __init__(self, where: str, show: Callable[[dict[str, Any]], None]) -> None:
        self._where, self._show = where, show
        self._began = datetime.now(UTC)
        self.endpoint: dict[str, Any] = {}
        self.levels: list[dict[str, Any]] = []
        self.left_out: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None

    def take(self, line: str | bytes) -> None:
        """Takes one line; ignores lines of other programs.

        Raises the program's error, and HostFailed for an invalid line.
        """
        try:
            parsed = read_line(line)
        except ValueError as error:
            raise HostFailed(f"{self._where}the output of the benchmark is invalid: {error}") from None
        if parsed is None:
            return
        if parsed.error:
            raise failure(parsed.error.model_dump(), self._where)
        if parsed.progress:
            self._show(parsed.progress.model_dump())
        self.endpoint = parsed.endpoint.model_dump() if parsed.endpoint else self.endpoint
        self.end = parsed.end.model_dump() if parsed.end else self.end
        self.levels += [parsed.level.model_dump()] if parsed.level else []
        self.left_out += [parsed.left_out.model_dump()] if parsed.left_out else []
        if len(self.levels) + len(self.left_out) > MOST_LEVELS:
            raise HostFailed(f"{self._where}the benchmark reported more than requested")

    def result(self, wanted: BenchRequest, about: dict[str, Any], last_words: str = "") -> dict[str, Any]:
        """The whole result. about: the caller's description. last_words: the output of a program that ended early.

        Raises HostFailed if no level was measured.
        """
        if self.end is None and not self.levels:
            raise HostFailed(f"{self._where}the benchmark ended early: {last_words or 'no output'}")
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


def show(host: str, service: str, state: dict[str, Any]) -> None:
    """Reports the progress of a level."""
    failed = f", {state['failed']} failed" if state["failed"] else ""
    level = f"{state['concurrency']} at once, {state['input']} in, {state['phase']}"
    text = f"{service} {level}: {state['ended']} answers{failed}"
    in_window = state["phase"] == "window"
    done, total, unit = (state["ended"], state["of_requests"], "requests") if state["of_requests"] else (0, 0, "")
    if state["of_s"]:
        done, total, unit = (int(state["elapsed_s"]), int(state["of_s"]), "s") if in_window else (0, 0, "")
    report(Progress(host, "bench", done, total, unit, text.strip()))


def notes(result: dict[str, Any]) -> list[str]:
    """Notes for readers of the figures."""
    found, endpoint = [], result["endpoint"]
    if not result["complete"]:
        found.append(f"incomplete: {result['why']}")
    found += [f"skipped prompts of {entry['input']} tokens: {entry['why']}" for entry in result["left_out"]]
    if not endpoint.get("ignores_eos", True):
        found.append("the endpoint does not support ignore_eos; answers may be shorter than requested")
    if not endpoint.get("counts_tokens", True):
        found.append("the endpoint does not count tokens; each stream event counts as one")
    if endpoint.get("prompts") == "words, not counted":
        found.append("prompts of exact length are not possible; each word counts as one token")
    for level in result["levels"]:
        found += [f"{level['concurrency']} at once: {text}" for text in _of_level(level)]
    return found


def _of_level(level: dict[str, Any]) -> list[str]:
    found = []
    engine, client, prompts = level["engine"], level["client"], level["prompt_tokens"]
    if not level["complete"]:
        found.append("interrupted; these figures cover the part measured until then")
    if engine and engine["capped"]:
        found.append(
            f"capped: the engine ran at most {engine['running_most']} requests and queued {engine['queued']:.0f}"
        )
    if prompts and (prompts["least"], prompts["most"]) != (level["input"], level["input"]):
        found.append(f"prompts had {prompts['least']} to {prompts['most']} tokens, not {level['input']}")
    if client["busy"] > BUSY and (client["late_ms"] or {}).get("p99", LATE_MS) >= LATE_MS:
        found.append(f"the client was busy {client['busy']:.0%} of the time and may limit the throughput")
    return found
