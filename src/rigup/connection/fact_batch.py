"""Many facts of a host in one command: the script, and the parser of its output. Pure.

A question is the command that a fact would run by itself. Each runs in its own shell, with empty standard input, and
its answer keeps standard output, standard error and exit status apart. Programs print English, whatever the host's
language.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from rigup.connection.pyinfra_internals import CommandOutput, OutputLine

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


class CommandResult(NamedTuple):
    """The result of one command; `ok` is exit status 0, as for pyinfra."""

    ok: bool
    lines: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, ok: bool, output: CommandOutput) -> CommandResult:
        """From the result of a command that ran by itself."""
        return cls(ok, tuple((line.buffer_name, line.line) for line in output.combined_lines))

    def returned(self) -> tuple[bool, CommandOutput]:
        """As a connector returns it; a new object each time, since the caller may change it."""
        return self.ok, CommandOutput([OutputLine(name, line) for name, line in self.lines])


def digest(command: str) -> str:
    """The name under which a command's answer comes back."""
    return hashlib.sha256(command.encode()).hexdigest()[:24]


def script(commands: Iterable[str]) -> str:
    """sh that runs every command and prints its digest before its output."""
    return ASK + lines(commands)


def lines(commands: Iterable[str]) -> str:
    """The variable part of the script: one call of `ask` for each command."""
    return "".join(f"ask {digest(command)} {shlex.quote(command)}\n" for command in commands)


def answers_in(output: CommandOutput) -> dict[str, CommandResult]:
    """Complete answers by digest; truncated ones are left out."""
    printed = _stream(output, "stdout")
    complained = _stream(output, "stderr")
    return {
        name: CommandResult(
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
        if words[:1] != [MARK] or len(words) < 2:
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
