"""How far a rollout has come, kept on the controlling machine so that another process can go on with it.

It is bound to what was to be rolled out: the lock, and the plans of each host. A rollout that would end with some hosts
on the one and some on the other is no rollout.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rigup.errors import InputError, Refused
from rigup.fleet.inventory import Project
from rigup.plan import Plan
from rigup.units import Frozen, time_text

Fate = Literal["not begun", "begun", "done", "failed"]
SHOWN_DIGITS = 12


class Part(Frozen):
    """One host's part. plans: the sha256 of what it is to serve. why: of a failed one."""

    plans: str
    fate: Fate = "not begun"
    why: str = ""


class Rollout(Frozen):
    """All hosts' parts, in the inventory's order. began: UTC. lock: the lock's sha256, "" where there is none."""

    inventory: str
    began: str
    lock: str
    hosts: dict[str, Part]


class KeptRollout:
    """A rollout and the file that it is kept in. What is on disk is always a whole one. waits: whether it is there."""

    def __init__(self, path: Path, rollout: Rollout, waits: bool = False) -> None:
        self.path, self.rollout, self.waits = path, rollout, waits

    def note(self, hosts: Iterable[str], fate: Fate, why: Mapping[str, str] | None = None) -> None:
        """Keeps what came of these hosts; once all are done there is nothing to go on with, and nothing is kept.

        Raises InputError where it cannot be kept. What came of hosts is known here all the same, and kept with what is
        noted next; one whose beginning could not be noted has not begun.
        """
        before = dict(self.rollout.hosts)
        for name in hosts:
            self.rollout.hosts[name] = Part(
                plans=self.rollout.hosts[name].plans, fate=fate, why=(why or {}).get(name, "")
            )
        all_done = all(part.fate == "done" for part in self.rollout.hosts.values())
        try:
            if all_done:
                self.path.unlink(missing_ok=True)
            else:
                self._write()
        except OSError as error:
            if fate == "begun":
                self.rollout.hosts.update(before)
            raise InputError(
                f"{self.path}: {error.strerror}: how far the rollout has come cannot be kept",
                "make room there, or set XDG_STATE_HOME to another folder",
            ) from None
        self.waits = not all_done

    def first(self, names: Iterable[str]) -> list[str]:
        """These hosts, in the order in which they are to be changed: where it went wrong, or was cut short, first."""
        cut_short = [name for name, part in self.rollout.hosts.items() if part.fate in ("begun", "failed")]
        return sorted(names, key=lambda name: name not in cut_short)

    def _write(self) -> None:
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(new, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(self.rollout.model_dump_json(indent=1))
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise


def begin(project: Project, plans: Mapping[str, Sequence[Plan]]) -> KeptRollout:
    """A rollout of these plans. It takes the place of an earlier one on disk once something is noted."""
    hosts = {name: Part(plans=_digest(of_host)) for name, of_host in plans.items()}
    began = time_text(time.time())
    return KeptRollout(
        place(project), Rollout(inventory=str(project.inventory), began=began, lock=_lock(project), hosts=hosts)
    )


def waiting(project: Project) -> Rollout | None:
    """The rollout of this inventory that was not ended. Raises InputError where its file cannot be read."""
    path = place(project)
    try:
        return Rollout.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise InputError(
            f"{path}: not what rigup keeps of a rollout",
            "delete it and begin anew: hosts that are right stay as they are",
        ) from None


def go_on(project: Project, plans: Mapping[str, Sequence[Plan]]) -> KeptRollout:
    """The rollout that is waiting.

    Raises InputError where there is none, Refused where it was begun with something else to roll out.
    """
    rollout = waiting(project)
    if rollout is None:
        raise InputError(f"--resume: no rollout of {project.inventory} is waiting", "leave --resume out to begin one")
    said = f"--resume: the rollout of {rollout.began}"
    lock = _lock(project)
    if lock != rollout.lock:
        then, now = (digest[:SHOWN_DIGITS] or "none" for digest in (rollout.lock, lock))
        raise Refused(
            f"{said} was begun with another rigup.lock: sha256 {then} then, {now} now",
            "put that lock back, or leave --resume out to begin anew",
        )
    if strangers := [name for name in plans if name not in rollout.hosts]:
        raise Refused(
            f"{said} was begun without {', '.join(strangers)}",
            "leave them out with --limit, or leave --resume out to begin anew",
        )
    if others := [name for name, of_host in plans.items() if _digest(of_host) != rollout.hosts[name].plans]:
        raise Refused(
            f"{said} was begun with another plan for {', '.join(others)}",
            "put group_data back as it was, or leave --resume out to begin anew",
        )
    return KeptRollout(place(project), rollout, waits=True)


def place(project: Project) -> Path:
    """Where the rollout of an inventory is kept on this machine."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    digest = hashlib.sha256(str(project.inventory.resolve()).encode()).hexdigest()
    return Path(state) / "rigup/rollouts" / f"{project.inventory.stem}-{digest[:SHOWN_DIGITS]}.json"


def _digest(plans: Sequence[Plan]) -> str:
    return hashlib.sha256("\n".join(plan.model_dump_json() for plan in plans).encode()).hexdigest()


def _lock(project: Project) -> str:
    path = project.lock_path
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
