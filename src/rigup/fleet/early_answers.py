"""What a host's services said with the greeting already, so that nobody has to ask them once more.

A host remembers what its services were asked last time, beside its other questions, and asks them again while it is
greeted. The answers count as long as facts do: while nothing has changed the host, and for FRESH_SECONDS. A service
that has not answered by then, or is to be asked something else now, is asked by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rigup.fleet.fact_batch import Answer, digest
from rigup.programs.ask import EARLY, REMEMBERED


def to_remember(requests: Iterable[dict[str, Any]]) -> dict[str, str]:
    """What a host keeps of these requests to `ask.py`, in lines that sh passes over, by digest."""
    texts = [json.dumps(request) for request in requests]
    return {digest(text): f"{REMEMBERED} {digest(text)} {text}\n" for text in texts}


def heard(lines: Iterable[str]) -> dict[str, Answer]:
    """What came back with the greeting, by digest; null of a service that was asked and has not answered."""
    words = [line.split(" ", 2) for line in lines if line.startswith(f"{EARLY} ")]
    return {name: Answer(True, (("stdout", said),)) for _, name, said in (one for one in words if len(one) == 3)}


def early_answer(host: Any, request: dict[str, Any]) -> dict[str, Any] | None:
    """What a service said to this request, if it has answered it already and that still counts."""
    reader = host.connector.facts
    known = reader.known(json.dumps(request)) if reader else None
    try:
        said = json.loads(known.lines[0][1]) if known else None
    except ValueError:  # cut off
        return None
    return said if isinstance(said, dict) else None
