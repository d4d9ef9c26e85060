"""Health answers that arrived with the handshake, so that services need not be asked again.

A host remembers the last requests to its services, next to its other questions, and repeats them during the handshake.
The answers are valid as long as facts are: while nothing has changed the host, and for FRESH_SECONDS. A service that
has not answered by then, or needs another request now, is asked separately.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rigup.connection.fact_batch import CommandResult, digest
from rigup.host import Host
from rigup.operations.service.reply import Reply, read_reply
from rigup.programs import ask


def to_remember(requests: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The form in which a host keeps these requests to `ask.py`: one line for each, by digest, that sh ignores."""
    questions = {digest(question): question for question in map(ask.request_line, requests)}
    return {name: f"{ask.REMEMBERED} {name} {question}\n" for name, question in questions.items()}


def replies_in(lines: Iterable[str]) -> dict[str, CommandResult]:
    """The answers that came with the handshake, by digest; services that did not answer are left out."""
    words = [line.split(" ", 2) for line in lines if line.startswith(f"{ask.REPLY_MARK} ")]
    return {
        word[1]: CommandResult(True, (("stdout", word[2] if len(word) > 2 else ""),)) for word in words if len(word) > 1
    }


def cached_reply(host: Host, request: dict[str, Any]) -> Reply | None:
    """The output of `ask.py` for a service that has already answered this request, if still valid."""
    reader = host.connector.facts
    known = reader.known(ask.request_line(request)) if reader else None
    reply = read_reply(known.lines[0][1]) if known else None
    return reply if reply and reply.state == "answered" else None
