"""What every apply leaves behind: a line on the host and one on the controlling machine, saying who did what and why.

A record holds names of steps, errors as they were shown, and hashes; never a secret, since none of those does.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rigup import __version__, layout
from rigup.errors import InputError
from rigup.fleet.inventory import Project
from rigup.fleet.result import HostResult
from rigup.plan import Plan
from rigup.units import time_text

ON_HOST = f"{layout.LOG}/applies.jsonl"
KEPT = 500
GIT_SECONDS = 5

# appended on the host, over standard input; what is older than the last KEPT goes now and then. Whoever changes nothing
# has no lease, and two of those may write at the same time.
APPEND = (
    'umask 022; [ -d "${1%/*}" ] || mkdir -p "${1%/*}"; IFS= read -r record; exec 8>>"$1.lock"; flock -w 10 8; '
    'printf "%s\\n" "$record" >> "$1"; '
    '[ "$(wc -l < "$1")" -le $(($2 * 2)) ] || { tail -n "$2" "$1" > "$1.new"; mv -f "$1.new" "$1"; }'
)


@dataclass(frozen=True)
class Record:
    """One apply on one host.

    when: UTC, as in "2026-11-21 20:15:00 UTC". lock: the first digits of rigup.lock's sha256. commit: of the fleet
    folder, "-dirty" where files in it were changed since, "" where it is no git checkout. services: what each of them
    was to be, by name. result: the host's state at the end. memory: of each service that was started, its GPUs as
    planned and as measured.
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

    def as_json(self) -> dict[str, Any]:
        """In plain values; schema 1. Where nothing was started there is no `memory`."""
        values = {"schema": 1, **asdict(self)}
        return values if self.memory else {key: value for key, value in values.items() if key != "memory"}


_ALWAYS = {each.name for each in fields(Record)} - {"memory"}
_KINDS: dict[str, Any] = {"seconds": (int, float), "services": dict, "changes": list, "errors": list}


class Recorder:
    """Makes the records of one run. Begins to ask git at once, and wants its answer only at the end."""

    def __init__(self, project: Project, who: str, verb: str) -> None:
        self.who, self.verb, self.when = who, verb, time_text(time.time())
        lock = project.lock_path
        self.lock = hashlib.sha256(lock.read_bytes()).hexdigest()[:16] if lock.is_file() else ""
        self._git = _ask_git(project.root)
        self._commit: str | None = None

    def record(self, result: HostResult, services: dict[str, str]) -> Record:
        """The record of one host."""
        return Record(
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
        )

    @property
    def commit(self) -> str:
        """Which commit the fleet folder is at."""
        if self._commit is None:
            self._commit = ""
            with suppress(OSError, subprocess.TimeoutExpired):
                if self._git is not None:
                    self._commit = self._git.communicate(timeout=GIT_SECONDS)[0].decode().strip()
        return self._commit


def served(plan: Plan) -> str:
    """What a plan serves, and with what, in a line."""
    checkpoint = f"{plan.checkpoint.repo} {plan.checkpoint.quant}" if plan.checkpoint else "nothing"
    return f"{checkpoint} with {plan.build.engine} {plan.build.version}" if plan.build else checkpoint


def keep_here(records: Iterable[Record]) -> None:
    """Appends records to this machine's; a full disk here is no reason to fail an apply that is done."""
    for record in records:
        path = here(record.host)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with path.open("a") as file:
                file.write(json.dumps(record.as_json()) + "\n")


def kept_here(host: str) -> list[dict[str, Any]]:
    """This machine's records of a host, oldest first. Raises InputError where they are there and cannot be read."""
    path = here(host)
    try:
        return parse(path.read_text(errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        hint = "who owns it, and the folders that it lies in? An apply under sudo leaves them to root"
        raise InputError(f"{path}: {error.strerror}", hint) from None


def here(host: str) -> Path:
    """Where this machine keeps its records of a host."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(state) / "rigup/applies" / f"{host.replace('/', '_')}.jsonl"


def parse(text: str) -> list[dict[str, Any]]:
    """Records from lines; one that is not whole (cut short by a full disk, or damaged) is passed over."""
    found = []
    for line in text.split("\n"):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and record.get("schema") == 1 and _is_whole(record):
                found.append(record)
    return found


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether all is there and of its kind; who shows it takes that for granted."""
    if not all(isinstance(record.get(name), _KINDS.get(name, str)) for name in _ALWAYS):
        return False
    texts = (*record["changes"], *record["errors"], *record["services"].values())
    return all(isinstance(text, str) for text in texts) and isinstance(record.get("memory", {}), dict)


def appending(record: Record) -> tuple[str, str]:
    """sh that appends it to the host's, and the line for its standard input."""
    return f"set -- {shlex.quote(ON_HOST)} {KEPT}; {APPEND}", json.dumps(record.as_json()) + "\n"


def _ask_git(root: Path) -> subprocess.Popen[bytes] | None:
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError):
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return None
