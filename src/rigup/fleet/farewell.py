"""The last thing said to a host that needs no change: does what it serves answer, and is it still as it was greeted?

All in one command. Nobody had the lease for this run, so the host itself says at the end whether anybody has had it
since the greeting; only if not, and if every service has answered, it puts the record of that on file.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rigup.fleet.fact_reading import harmless
from rigup.fleet.lease import stamp
from rigup.operations import remote
from rigup.verify.generation import ANSWER_SECONDS, ASK

MARK = "##rigup-farewell##"
_END = "rigup-ends-here-5f1c"
_ANSWERED = '{"state": "answered"'


@dataclass(frozen=True)
class Farewell:
    """What came back.

    said: what `ask.py` said, by service. disturbed: somebody has had the lease. recorded: all is well, and on record.
    """

    said: dict[str, dict[str, Any]]
    disturbed: bool
    recorded: bool


def say_farewell(
    host: Any, seen: str, requests: dict[str, dict[str, Any]], last: tuple[tuple[str, str], ...]
) -> Farewell:
    """Says it. Raises as `remote.ask` does.

    seen: the stamp that the greeting found. requests: to `ask.py`, by service. last: sh with its standard input, run on
    the host where all is well.
    """
    with harmless():
        seconds = (ANSWER_SECONDS + 30) * (len(requests) + 1)
        output = remote.ask(host, "sh", "-s", stdin="".join(_script(seen, requests, last)), timeout=seconds)
    said: dict[str, dict[str, Any]] = {}
    ends: set[str] = set()
    for line in output.stdout.splitlines():
        mark, _, rest = line.partition(" ")
        key, _, text = rest.partition(" ")
        if mark == MARK and key == "answer":
            name, _, answer = text.partition(" ")
            said[name] = json.loads(answer) if answer.startswith("{") else {"state": "failed", "why": answer}
        elif mark == MARK:
            ends.add(key)
    return Farewell(said, "disturbed" in ends, "recorded" in ends)


def _script(seen: str, requests: dict[str, dict[str, Any]], last: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield "right=yes\n"
    for name, request in requests.items():
        yield f"said=$({_with(shlex.join(ASK), json.dumps(request))})\n"
        yield f"printf '%s\\n' \"{MARK} answer {name} $said\"\n"
        yield f"case $said in {shlex.quote(_ANSWERED)}*) ;; *) right=;; esac\n"
    yield f'if [ "$({stamp()})" != {shlex.quote(seen)} ]; then echo "{MARK} disturbed"; exit; fi\n'
    yield '[ "$right" ] || exit 0\n'
    for text, stdin in last:
        yield f"{_with(f'{{ {text}; }}', stdin)}\n"
    yield f'echo "{MARK} recorded"\n'


def _with(text: str, stdin: str) -> str:
    """sh with this on its standard input, which is lines."""
    return f"{text} <<'{_END}'\n{stdin.removesuffix(chr(10))}\n{_END}\n"
