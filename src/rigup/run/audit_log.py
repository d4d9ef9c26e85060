"""The records of applies: one line on the host and one on the controlling machine, with the user and the changes.

A record contains names of steps, error messages and hashes, none of which contains a secret.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from select import select
from typing import Any

from rigup import __version__, layout
from rigup.errors import InputError
from rigup.plan import Plan
from rigup.project.inventory import Project
from rigup.regular_files import state_folder
from rigup.run.result import HostResult
from rigup.units import time_text

KEPT = 500
GIT_SECONDS = 5

# Appends a record on the host; sometimes removes all but the last KEPT. A run without changes has no lease, so two of
# them may write at the same time. Root alone reads them: the command lines of exec may hold secrets.
APPEND = (
    'umask 077; IFS= read -r record; [ -d "${1%/*}" ] || mkdir -p -m 755 "${1%/*}"; '
    'if [ -O "${1%/*}" ] && [ ! -L "${1%/*}" ]; then exec 8>>"$1.lock"; flock -w 10 8; '
    'printf "%s\\n" "$record" >> "$1"; chmod 600 "$1" "$1.lock"; '
    '[ "$(wc -l < "$1")" -le $(($2 * 2)) ] || { tail -n "$2" "$1" > "$1.new"; mv -f "$1.new" "$1"; }; fi'
)


@dataclass(frozen=True)
class ApplyRecord:
    """One apply on one host.

    when: UTC, as in "2026-11-21 20:15:00 UTC". lock: the first digits of rigup.lock's sha256. commit: of the fleet
    folder, with "-dirty" if it has uncommitted changes, "" without git. services: planned checkpoint and engine, by
    name. result: the host's state at the end. memory: for each service that was started, its GPUs' memory as planned
    and as measured. steps: how long each took, as in `rigup apply --json`.
    """

    host: str
    when: str
    who: str
    verb: str
    result: str
    seconds: float
    rigup: str
    lock: str
    commit: str
    services: dict[str, str]
    changes: tuple[str, ...]
    errors: tuple[str, ...]
    memory: dict[str, Any] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As JSON values, schema 1; `memory` and `steps` only if there are any."""
        values = {"schema": 1, **asdict(self)}
        return {key: value for key, value in values.items() if value or key not in ("memory", "steps")}


class Recorder:
    """Makes the records of one run. Starts git at once, and reads its output only at the end."""

    def __init__(self, project: Project, who: str, verb: str) -> None:
        self.who, self.verb, self.when = who, verb, time_text(time.time())
        self.lock = project.lock_digest[:16]
        self._git = _ask_git(project.root)
        self._commit: str | None = None

    def record(self, result: HostResult, services: dict[str, str]) -> ApplyRecord:
        """The record of one host."""
        return ApplyRecord(
            result.host,
            self.when,
            self.who,
            self.verb,
            result.state,
            round(result.seconds, 1),
            __version__,
            self.lock,
            self.commit,
            services,
            tuple(f"{change.role}: {change.step}" for change in result.changes),
            tuple(error.message for error in result.errors),
            result.memory,
            tuple(time.as_json() for time in result.step_times),
        )

    @property
    def commit(self) -> str:
        """The commit of the fleet folder; "" outside of a git checkout."""
        if self._commit is None:
            self._commit = ""
            if self._git is not None:
                if select([self._git], [], [], GIT_SECONDS)[0]:  # it prints one line, or nothing
                    self._commit = os.read(self._git, 100).decode(errors="replace").strip()
                os.close(self._git)
        return self._commit


def served(plan: Plan) -> str:
    """The checkpoint and the engine of a plan, in a line; of a swap group, all checkpoints."""
    served = [each.checkpoint for each in plan.members or (plan,)]
    checkpoint = ", ".join(dict.fromkeys(f"{each.repo} {each.quant}" for each in served if each)) or "nothing"
    return f"{checkpoint} with {plan.build.engine} {plan.build.version}" if plan.build else checkpoint


def keep_here(records: Iterable[ApplyRecord]) -> None:
    """Appends records to those on this machine; a full disk here does not fail an apply that has finished."""
    for record in records:
        path = here(record.host)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a") as file:
                os.fchmod(file.fileno(), 0o600)  # an earlier version's file was open to others
                file.write(json.dumps(record.as_json()) + "\n")


def kept_here(host: str) -> list[dict[str, Any]]:
    """This machine's records of a host, oldest first. Raises InputError if they exist and cannot be read."""
    from rigup.facts.apply_records import parse  # an apply itself reads none

    path = here(host)
    try:
        return parse(path.read_text(errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        hint = (
            "check the permissions of the file and its parent directories; an apply under sudo makes root their owner"
        )
        raise InputError(f"{path}: {error.strerror}", hint) from None


def here(host: str) -> Path:
    """The file with this machine's records of a host."""
    return state_folder() / "applies" / f"{host.replace('/', '_')}.jsonl"


def appending(record: ApplyRecord) -> tuple[str, str]:
    """sh that appends a record on the host, and its standard input."""
    return f"set -- {shlex.quote(layout.APPLY_RECORDS)} {KEPT}; {APPEND}", json.dumps(record.as_json()) + "\n"


def _ask_git(root: Path) -> int | None:
    """Starts git, and returns where its output is to be read; None without git.

    Not by subprocess: as gevent has it, it copies this whole process first, which takes 0.03 s.
    """
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    output, writing = os.pipe()
    streams = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    try:
        os.posix_spawnp("git", words, os.environ, file_actions=streams)
        return output
    except OSError:
        os.close(output)
        return None
    finally:
        os.close(writing)
