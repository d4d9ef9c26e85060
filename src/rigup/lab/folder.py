"""What the lab keeps, and where: everything is under one folder of the user's cache folder."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from rigup.errors import InputError
from rigup.lab.addresses import SSH_PORT
from rigup.units import Frozen


def caller() -> pwd.struct_passwd | None:
    """The user who called through sudo, or None. The lab lives in that user's cache folder and its files are theirs."""
    uid = os.environ.get("SUDO_UID", "")
    return pwd.getpwuid(int(uid)) if os.geteuid() == 0 and uid.isdigit() and int(uid) else None


def lab_root() -> Path:
    """`$XDG_CACHE_HOME` or `~/.cache`, then `rigup/lab`."""
    user = caller()
    home = Path(user.pw_dir) if user else Path.home()
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache").absolute() / "rigup" / "lab"


def make_folder(path: Path) -> Path:
    """Makes a folder with its parents; what is new under sudo belongs to the user who called."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        give_to_caller(folder)
    return path


def give_to_caller(path: Path) -> None:
    """Under sudo, hands a file or folder to the user who called."""
    user = caller()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes a file of the lab whole or not at all, for the user who called."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.chmod(mode)
    give_to_caller(part)
    part.rename(path)


def remove_tree(path: Path) -> None:
    """Removes a folder. What is mounted below it is unmounted first, so that nothing of this machine goes with it."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        point = line.split()[4].replace("\\040", " ")
        if point == str(path) or point.startswith(f"{path}/"):
            subprocess.run(["umount", "--lazy", point], check=True)
    shutil.rmtree(path, ignore_errors=True)


class LabRecord(Frozen):
    """What a lab was asked to be. Machines are `name` followed by 1 to `hosts`; `base` is the image's folder name.

    network: which namespace is the lab's, for its number may be another lab's after a restart of this machine.
    """

    name: str
    number: int
    network: int
    suite: str
    base: str
    disk: str
    hosts: int
    ssh_port: int = SSH_PORT


@dataclass(frozen=True)
class LabFolder:
    """The folder of one lab by name; it exists from the first `up` to `down`."""

    name: str

    @property
    def path(self) -> Path:
        return lab_root() / "labs" / self.name

    @property
    def key(self) -> Path:
        """The private key that opens every machine of the lab; the public one is beside it."""
        return self.path / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.path / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.path / "ssh_config"

    @property
    def inventory(self) -> Path:
        return self.path / "inventory.py"

    def machine(self, index: int) -> Path:
        """The folder of one machine: its host key, log and cable; its disk is mounted here, for its holder alone."""
        return self.path / "machines" / str(index)

    def record(self) -> LabRecord | None:
        """What this lab is, or None where there is none; raises InputError for a record that another rigup wrote."""
        file = self.path / "lab.json"
        try:
            return LabRecord.model_validate_json(file.read_text())
        except FileNotFoundError:
            return None
        except ValidationError:
            hint = f"take it down with the rigup that made it, or remove {self.path}"
            raise InputError(f"{file}: another version of rigup made this lab", hint) from None

    def existing(self) -> LabRecord:
        """The record of a lab that must exist; raises InputError naming the labs that do."""
        record = self.record()
        if record is None:
            others = ", ".join(other.name for other in lab_folders()) or "none is up"
            raise InputError(f"lab {self.name}: there is no such lab ({others})", f"rigup lab up --name {self.name}")
        return record

    def keep(self, record: LabRecord) -> None:
        """Writes the record."""
        write(self.path / "lab.json", record.model_dump_json(indent=1) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One `up` or `down` of a lab at a time; a second one waits."""
        while True:
            make_folder(self.path)
            handle = os.open(self.path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                # Whoever held the lock before may have removed the folder: then this lock guards nothing.
                if self.path.exists() and os.fstat(handle).st_ino == self.path.stat().st_ino:
                    yield
                    return
            finally:
                with suppress(OSError):
                    self.path.rmdir()  # An `up` that failed early leaves no trace
                os.close(handle)


def lab_folders() -> list[LabFolder]:
    """Every lab that is recorded, by name."""
    labs = lab_root() / "labs"
    return [LabFolder(path.parent.name) for path in sorted(labs.glob("*/lab.json"))]
