"""Many questions to a host in one command: the script that asks them, and the answers in what it prints. Pure.

A question is the very command that a fact would run by itself. Each runs in a shell of its own, with nothing on its
standard input, and its answer keeps standard output, standard error and exit status apart. What programs say is said in
English, whatever the language of the host.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from pyinfra.connectors.util import CommandOutput, OutputLine

MARK = "##rigup-fact##"

# printf's first newline ends a last line that has none; `answers_in` takes it away again where there was one
ASK = f"""
export LC_ALL=C
ask() {{
echo "{MARK} $1"; echo "{MARK} $1" >&2
( eval "$2" ) </dev/null; status=$?
printf '\\n%s\\n' "{MARK} = $status"; printf '\\n%s\\n' "{MARK} =" >&2
}}
"""


@dataclass(frozen=True)
class Answer:
    """What one command left behind; `ok` is exit status 0, as for pyinfra."""

    ok: bool
    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, ok: bool, output: CommandOutput) -> Answer:
        """From what a command that ran by itself returned."""
        return cls(ok, tuple((line.buffer_name, line.line) for line in output.combined_lines))

    def returned(self) -> tuple[bool, CommandOutput]:
        """As a connector returns it; made anew each time, since who asks may change it."""
        return self.ok, CommandOutput([OutputLine(name, line) for name, line in self.lines])


def digest(command: str) -> str:
    """The name under which a command's answer comes back."""
    return hashlib.sha256(command.encode()).hexdigest()[:24]


def script(commands: Iterable[str]) -> str:
    """sh that runs every command and says after which digest what it printed."""
    return ASK + lines(commands)


def lines(commands: Iterable[str]) -> str:
    """The part of the script that differs: one call of `ask` for each command."""
    return "".join(f"ask {digest(command)} {shlex.quote(command)}\n" for command in commands)


def answers_in(output: CommandOutput) -> dict[str, Answer]:
    """Whole answers by digest; one that was cut off is not among them."""
    printed = _stream(output, "stdout")
    complained = _stream(output, "stderr")
    return {
        name: Answer(
            status == "0",
            (*(("stdout", line) for line in lines), *(("stderr", line) for line in complained[name][1])),
        )
        for name, (status, lines) in printed.items()
        if status is not None and name in complained
    }


def _stream(output: CommandOutput, name: str) -> dict[str, tuple[str | None, list[str]]]:
    """By digest: the exit status (None while it has none) and the lines on one of the streams."""
    found: dict[str, tuple[str | None, list[str]]] = {}
    current = ""
    for line in (line.line for line in output.combined_lines if line.buffer_name == name):
        words = line.split()
        if not words or words[0] != MARK:
            if current:
                found[current][1].append(line)
        elif words[1] == "=" and current:
            lines = found[current][1]
            if lines and not lines[-1]:
                lines.pop()
            found[current] = ("".join(words[2:]), lines)
            current = ""
        else:
            current = words[1]
            found[current] = (None, [])
    return found
