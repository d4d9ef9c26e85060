"""The plans of last time, for a run whose fleet is still described as it was then.

To plan takes a tenth of a second, most of it to import the planner and to read the catalogue: more than to compare a
host. A plan depends on nothing but what a fleet's files say and on rigup itself, so it is kept under a digest of both.
What cannot be read, or is not a plan, was not kept; nothing here is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rigup.cache import cache_folder
from rigup.fleet.inventory import Project
from rigup.toolkit import toolkit_root

if TYPE_CHECKING:
    from rigup.plan import Plan

FOLDER = "plans"
KEPT = 32
MOST_BYTES = 1_000_000  # a fleet of hundreds waits for its hosts, not for its plans
_PROGRAM = Path(__file__).parents[1]
_OWN = ("catalogue", "files/moe_configs")


class KeptPlans:
    """The plans of one project, as it is described now."""

    def __init__(self, project: Project) -> None:
        self.path = cache_folder() / FOLDER / f"{_digest(project)}.jsonl"

    @property
    def there(self) -> bool:
        """Whether something was kept."""
        return self.path.exists()

    def read(self) -> tuple[Plan, ...] | None:
        """The plans, in the inventory's order; None where none were kept, or they cannot be used."""
        from rigup.plan import Plan  # the digest is made while hosts are being reached, before this is imported

        try:
            checksum, _, text = self.path.read_bytes().partition(b"\n")
            if checksum != _checksum(text):  # cut off, as by a power cut
                return None
            return tuple(map(Plan.model_validate_json, text.splitlines()))
        except (OSError, ValueError):
            return None

    def keep(self, plans: tuple[Plan, ...]) -> None:
        """Keeps them, where there is room, in place of those that were kept longest ago."""
        text = "".join(f"{plan.model_dump_json()}\n" for plan in plans).encode()
        if len(text) > MOST_BYTES:
            return
        new = self.path.with_suffix(f".{os.getpid()}")
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(_checksum(text) + b"\n" + text)
            new.replace(self.path)
            by_age = sorted(self.path.parent.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
            for path in by_age[KEPT:]:
                path.unlink(missing_ok=True)


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _digest(project: Project) -> str:
    """Of everything that a plan of this project depends on."""
    digest = hashlib.sha256(repr(project).encode(errors="surrogateescape"))
    own = (str(project.lock_path), *(path for folder in _OWN for path, _, _ in _files(f"{project.root}/{folder}")))
    for path in own:
        with suppress(OSError):
            digest.update(path.encode(errors="surrogateescape") + Path(path).read_bytes())
    for folder in (str(_PROGRAM), *(f"{toolkit_root()}/{name}" for name in _OWN)):
        digest.update(repr(list(_files(folder))).encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def _files(folder: str) -> Iterator[tuple[str, int, int]]:
    """All files below, but those that Python makes, with size and time of change; sorted, () where there is none."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat()
        except OSError:  # gone meanwhile, or a link to nothing, which editors make while a file is open
            continue
        if not stat.S_ISDIR(found.st_mode):
            yield entry.path, found.st_size, found.st_mtime_ns
        elif entry.name != "__pycache__":
            yield from _files(entry.path)
