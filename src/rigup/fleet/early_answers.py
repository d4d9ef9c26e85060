"""What a host's services said with the greeting already, so that nobody has to ask them once more.

A host remembers what its services were asked last time, beside its other questions, and asks them again while it is
greeted. The answers count as long as facts do: while nothing has changed the host, and for FRESH_SECONDS. A service
that has not answered by then, or is to be asked something else now, is asked by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigup.fleet.fact_batch import Answer, digest
from rigup.programs import ask


def to_remember(requests: Iterable[dict[str, Any]]) -> dict[str, str]:
    """What a host keeps of these requests to `ask.py`, a line for each that sh passes over, by digest."""
    questions = {digest(question): question for question in map(ask.early_question, requests)}
    return {name: f"{ask.REMEMBERED} {name} {question}\n" for name, question in questions.items()}


def heard(lines: Iterable[str]) -> dict[str, Answer]:
    """What came back with the greeting, by digest; nothing of a service that was asked and has not answered."""
    words = [line.split(" ", 2) for line in lines if line.startswith(f"{ask.EARLY} ")]
    return {word[1]: Answer(True, (("stdout", word[2] if len(word) > 2 else ""),)) for word in words}


def early_answer(host: Any, request: dict[str, Any]) -> dict[str, Any] | None:
    """What `ask.py` says of a service that has answered this request already, if that still counts."""
    reader = host.connector.facts
    known = reader.known(ask.early_question(request)) if reader else None
    seconds, _, said = known.lines[0][1].partition(" ") if known else ("",) * 3
    try:
        return ask.answer_in(said.encode(), float(seconds)) if seconds else None
    except ask.UNUSABLE:
        return None
