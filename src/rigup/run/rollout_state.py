"""The progress of a rollout, saved on the controlling machine so that another process can resume it.

It belongs to one lock and one set of plans: a resumed rollout must not leave some hosts on one and some on another.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rigup.errors import InputError, Refused
from rigup.plan import Plan
from rigup.project.inventory import Project
from rigup.regular_files import replace_file, state_folder
from rigup.units import Frozen, time_text

HostState = Literal["not begun", "begun", "done", "failed"]
SHOWN_DIGITS = 12


class HostProgress(Frozen):
    """The progress of one host. plans: sha256 of its plans. why: the reason if it failed."""

    plans: str
    state: HostState = "not begun"
    why: str = ""


class RolloutProgress(Frozen):
    """The progress of all hosts, in the inventory's order. began: UTC. lock: sha256 of the lock, "" without one."""

    inventory: str
    began: str
    lock: str
    hosts: dict[str, HostProgress]


class SavedRollout:
    """A rollout and its file, which is always complete. exists: whether the file does."""

    def __init__(self, path: Path, rollout: RolloutProgress, exists: bool = False) -> None:
        self.path, self.rollout, self.exists = path, rollout, exists

    def save(self, hosts: Iterable[str], state: HostState, why: Mapping[str, str] | None = None) -> None:
        """Saves the progress of these hosts; once all are done, the file is deleted.

        Raises InputError if it cannot be saved. This object keeps the progress, and saves it with the next one; a host
        whose start could not be saved has not started.
        """
        before = dict(self.rollout.hosts)
        for name in hosts:
            self.rollout.hosts[name] = HostProgress(
                plans=self.rollout.hosts[name].plans, state=state, why=(why or {}).get(name, "")
            )
        all_done = all(part.state == "done" for part in self.rollout.hosts.values())
        try:
            if all_done:
                self.path.unlink(missing_ok=True)
            else:
                self._write()
        except OSError as error:
            if state == "begun":
                self.rollout.hosts.update(before)
            raise InputError(
                f"{self.path}: {error.strerror}: cannot save the progress of the rollout",
                "free disk space, or set XDG_STATE_HOME to another folder",
            ) from None
        self.exists = not all_done

    def in_order(self, names: Iterable[str]) -> list[str]:
        """These hosts in the order of their changes: those that failed or were interrupted first."""
        cut_short = [name for name, part in self.rollout.hosts.items() if part.state in ("begun", "failed")]
        return sorted(names, key=lambda name: name not in cut_short)

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self.path, self.rollout.model_dump_json(indent=1).encode(), mode=0o600)


def start(project: Project, plans: Mapping[str, Sequence[Plan]]) -> SavedRollout:
    """Starts a rollout of these plans; it replaces an earlier one on disk with its first progress."""
    hosts = {name: HostProgress(plans=_digest(of_host)) for name, of_host in plans.items()}
    began, inventory = time_text(time.time()), str(project.inventory)
    rollout = RolloutProgress(inventory=inventory, began=began, lock=project.lock_digest, hosts=hosts)
    return SavedRollout(state_file(project), rollout)


def unfinished(project: Project) -> RolloutProgress | None:
    """The unfinished rollout of this inventory. Raises InputError if its file cannot be read."""
    path = state_file(project)
    try:
        return RolloutProgress.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise InputError(
            f"{path}: not a valid rollout state file",
            "delete it and start again; hosts that are up to date are skipped",
        ) from None


def resume(project: Project, plans: Mapping[str, Sequence[Plan]]) -> SavedRollout:
    """The unfinished rollout of this inventory, to resume it.

    Raises InputError if there is none, Refused if it started with another lock or other plans.
    """
    rollout = unfinished(project)
    if rollout is None:
        raise InputError(f"--resume: no rollout of {project.inventory} is unfinished", "omit --resume to start one")
    prefix = f"--resume: the rollout of {rollout.began}"
    lock = project.lock_digest
    if lock != rollout.lock:
        then, now = (digest[:SHOWN_DIGITS] or "none" for digest in (rollout.lock, lock))
        raise Refused(
            f"{prefix} started with another rigup.lock: sha256 {then} then, {now} now",
            "restore that lock, or omit --resume to start again",
        )
    if added := [name for name in plans if name not in rollout.hosts]:
        raise Refused(
            f"{prefix} started without {', '.join(added)}",
            "exclude them with --limit, or omit --resume to start again",
        )
    if others := [name for name, of_host in plans.items() if _digest(of_host) != rollout.hosts[name].plans]:
        raise Refused(
            f"{prefix} started with another plan for {', '.join(others)}",
            "restore group_data, or omit --resume to start again",
        )
    return SavedRollout(state_file(project), rollout, exists=True)


def state_file(project: Project) -> Path:
    """The file on this machine with the progress of an inventory's rollout."""
    digest = hashlib.sha256(str(project.inventory.resolve()).encode()).hexdigest()
    return state_folder() / "rollouts" / f"{project.inventory.stem}-{digest[:SHOWN_DIGITS]}.json"


def _digest(plans: Sequence[Plan]) -> str:
    return hashlib.sha256("\n".join(plan.model_dump_json() for plan in plans).encode()).hexdigest()
