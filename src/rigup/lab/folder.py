"""The lab's files, all in one folder of the user's cache."""

import fcntl
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rigup.errors import InputError
from rigup.lab.network.addresses import SSH_PORT
from rigup.units import Frozen


def caller() -> pwd.struct_passwd | None:
    """The user who called sudo, or None. The lab is in that user's cache folder, and that user owns its files."""
    uid = os.environ.get("SUDO_UID", "")
    if os.geteuid() or not uid.isdigit() or not int(uid):
        return None
    with suppress(KeyError):  # an unknown user id
        return pwd.getpwuid(int(uid))
    return None


def lab_root() -> Path:
    """`rigup/lab` in `$XDG_CACHE_HOME` or `~/.cache`."""
    user = caller()
    home = Path(user.pw_dir) if user else Path.home()
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache").absolute() / "rigup" / "lab"


def make_folder(path: Path) -> Path:
    """Creates a folder with its parents; under sudo new ones belong to the calling user."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        give_to_caller(folder)
    return path


def give_to_caller(path: Path) -> None:
    """Under sudo, hands a file or folder to the calling user."""
    user = caller()
    if user:
        os.chown(path, user.pw_uid, user.pw_gid)


def write(path: Path, text: str) -> None:
    """Writes a file of the lab atomically, for the calling user."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text)
    part.chmod(0o644)
    give_to_caller(part)
    part.rename(path)


def remove_tree(path: Path) -> None:
    """Removes a folder after unmounting everything below it, so that no other files are deleted."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        point = line.split()[4].replace("\\040", " ")
        if point == str(path) or point.startswith(f"{path}/"):
            subprocess.run(["umount", "--lazy", point], check=True)  # noqa: S607  root's own PATH
    shutil.rmtree(path, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file, which exists only while it is held."""
    while True:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # The previous holder may have removed the file: then this lock is void, and another process owns the file.
            if _is(path, os.fstat(lock.fileno())):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _is(path: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), file)
    except FileNotFoundError:
        return False


class LabRecord(Frozen):
    """The configuration of a lab. Machines are `name` followed by 1 to `hosts`; `base` is the image's folder name.

    network: the namespace's identity, because another lab may get this number after a restart of this machine.
    first_id: the first user and group id of its machines on this machine.
    rig: the simulated GPUs of each machine in the form of group_data; None for none.
    """

    name: str
    number: int
    network: int
    first_id: int
    suite: str
    base: str
    disk: str
    hosts: int
    ssh_port: int = SSH_PORT
    rig: dict[str, Any] | None = None


@dataclass(frozen=True)
class LabFolder:
    """The folder of one lab by name; it exists from the first `up` to `down`."""

    name: str

    @property
    def path(self) -> Path:
        return lab_root() / "labs" / self.name

    @property
    def key(self) -> Path:
        """The private key that opens every machine of the lab; the public key is in the same folder."""
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
        """The folder of one machine: host key, log and cable; only its holder has its disk mounted here."""
        return self.path / "machines" / str(index)

    def machines(self) -> list[Path]:
        """The folders of all machines of the lab, including those of a failed `up`."""
        return sorted((self.path / "machines").glob("[0-9]*"))

    def record(self) -> LabRecord | None:
        """The lab's record, or None if it does not exist; raises InputError for a record of another rigup version."""
        file = self.path / "lab.json"
        try:
            return LabRecord.model_validate_json(file.read_text())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise InputError(
                f"{file}: the lab was created by another version of rigup", f"rigup lab down {self.name}"
            ) from None

    def fields(self) -> dict[str, Any]:
        """The record's fields, of any version; empty if unreadable."""
        try:
            fields = json.loads((self.path / "lab.json").read_text())
        except (OSError, ValueError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def existing(self) -> LabRecord:
        """The record of a lab that must exist; raises InputError naming the labs that do."""
        record = self.record()
        if record is None:
            raise self.unknown()
        return record

    def unknown(self) -> InputError:
        """The error for a lab that does not exist."""
        others = ", ".join(other.name for other in lab_folders()) or "none"
        return InputError(f"lab {self.name} does not exist (labs: {others})", f"rigup lab up --name {self.name}")

    def keep(self, record: LabRecord) -> None:
        """Writes the record."""
        write(self.path / "lab.json", record.model_dump_json(indent=1, exclude_none=True) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Allows one `up` or `down` of a lab at a time; a second one waits. The lab's folder exists meanwhile."""
        with locked(make_folder(self.path.parent) / f".{self.name}.lock"):
            make_folder(self.path)
            try:
                yield
            finally:
                with suppress(OSError):
                    self.path.rmdir()  # remove the empty folder of an `up` that failed early


def lab_folders() -> list[LabFolder]:
    """Every recorded lab, by name."""
    labs = lab_root() / "labs"
    return [LabFolder(path.parent.name) for path in sorted(labs.glob("*/lab.json"))]
