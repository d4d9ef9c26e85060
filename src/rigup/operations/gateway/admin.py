"""What HAProxy says through its admin socket, and what it is told there."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyinfra.api import FactBase

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.bounds import Unreadable, json_of
from rigup.gateway.paths import ADMIN_PROGRAM, ADMIN_SOCKET, UNIT
from rigup.gateway.servers import taken_out
from rigup.host import Host
from rigup.operations.primitives import remote

WORDS = ("python3", "-I", f"{layout.PROGRAMS}/{ADMIN_PROGRAM}", ADMIN_SOCKET)


@dataclass
class DrainedNow:
    """The backends that this run has taken out at a gateway, by full name: it gives them back itself."""

    servers: set[str] = field(default_factory=set)


class AdminAnswers(FactBase[tuple[str, ...]]):
    """The answers to read-only commands, in order; () if no gateway runs."""

    default = tuple

    def command(self, commands: tuple[str, ...]) -> str:
        return f"echo {shlex.quote(json.dumps(commands))} | {shlex.join(WORDS)} 2>/dev/null; true"

    def process(self, output: list[str]) -> tuple[str, ...]:
        return read_answers("\n".join(output))


def read_answers(text: str) -> tuple[str, ...]:
    """The texts in the program's output; () if that is anything else."""
    try:
        found = json_of(text, "its answer") if text else []
    except Unreadable:
        return ()
    return tuple(found) if isinstance(found, list) and all(isinstance(one, str) for one in found) else ()


def tell(host: Host, *commands: str) -> tuple[str, ...]:
    """Sends commands to a running gateway. Raises HostFailed if it does not answer all of them."""
    output = remote.run(host, *WORDS, stdin=json.dumps(commands))
    answers = read_answers(output.stdout.strip())
    if not output.ok or len(answers) != len(commands):
        raise HostFailed(
            f"{host.name}: the gateway does not answer: {output.last_line}", f"on the host: journalctl -u {UNIT}"
        )
    return answers


def state_commands(maps: Iterable[str]) -> tuple[str, ...]:
    """What to ask for `is_current`."""
    return ("show info", "show servers state", *(f"show map {path}" for path in maps))


def is_current(answers: Sequence[str], digest: str, maps: Mapping[str, str], drained: Collection[str] = ()) -> bool:
    """Whether the running process has this configuration and these maps, and no backend was taken out by a command.

    answers: to `state_commands` of them. drained: backends that are out for good reason.
    """
    current = running_digest(answers) == digest and not outdated_maps(answers, maps)
    return current and not left_out(answers, drained)


def running_digest(answers: Sequence[str]) -> str:
    """What the running process calls itself."""
    lines = answers[0].splitlines() if answers else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("description:")), "")


def left_out(answers: Sequence[str], drained: Collection[str] = ()) -> tuple[str, ...]:
    """The backends that a command has taken out, as an apply that was killed leaves them. drained: other ones."""
    return tuple(name for name in taken_out(answers[1]) if name not in drained) if len(answers) > 1 else ()


def outdated_maps(answers: Sequence[str], maps: Mapping[str, str]) -> tuple[str, ...]:
    """The paths of maps whose content the running process does not have."""
    found = dict(zip(maps, answers[2:], strict=False))
    return tuple(path for path, text in maps.items() if found.get(path) != map_digest(text))


def map_digest(text: str) -> str:
    """The digest of a map file's entries, as the program prints that of a map of the running process."""
    return hashlib.sha256("\n".join(sorted(text.splitlines())).encode()).hexdigest()


def replace_map(host: Host, path: str, text: str) -> None:
    """Replaces a map of the running process at once. Raises HostFailed."""
    (prepared,) = tell(host, f"prepare map {path}")
    version = prepared.rpartition(":")[2].strip()
    if not version.isdigit():
        raise HostFailed(f"{host.name}: the gateway cannot replace {path}: {prepared[:200]}")
    entries = [f"add map @{version} {path} <<\n{text.rstrip()}"] if text.strip() else []
    for command in (*entries, f"commit map @{version} {path}"):
        if problem := "".join(tell(host, command)):
            raise HostFailed(f"{host.name}: the gateway cannot replace {path}: {problem[:200]}")
