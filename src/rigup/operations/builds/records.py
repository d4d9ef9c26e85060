"""Builds of a builder, stored on the controlling machine: the archive of each build and the hash of every file.

rigup makes a record here from the archive that arrived, so that it does not rely on the builder's word, and only of a
build that the builder compiled in this run. Other hosts get the recorded archive, or compile the build themselves.
"""

import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rigup.errors import HostFailed
from rigup.regular_files import sha256_of
from rigup.settings import Builder
from rigup.units import Frozen, bytes_text

MANIFEST = "manifest.json"
MOST_BYTES = 16_000_000_000
MOST_FILES = 10_000
MOST_MANIFEST_BYTES = 10_000_000
MOST_NAME_BYTES = 65_536
BLOCK = 2**20
_PATH = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9._+-]*(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)*")


class BuildRecord(Frozen):
    """One build. archive: sha256 of its tar.gz. files: sha256 by path below the build's folder."""

    build: str
    built_by: str
    archive: str
    files: dict[str, str]

    @property
    def sums(self) -> str:
        """The input of sha256sum --check."""
        return "".join(f"{sha256}  {path}\n" for path, sha256 in self.files.items())


class ReceivedArchive(io.FileIO):
    """The file that an arriving archive is written to, with a limit on its size."""

    def write(self, block: Any) -> int:
        """Writes like a file. Raises OSError beyond MOST_BYTES."""
        if self.tell() + len(block) > MOST_BYTES:
            raise OSError(f"received more than {bytes_text(MOST_BYTES)}")
        return super().write(block)


class _ShortMember(tarfile.TarInfo):
    """A tar member; it limits the length of names before they are read into memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        plain = self.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        if (self.size > MOST_NAME_BYTES and not plain) or self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("a header is too long")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def read_record(builder: Builder, build: str) -> BuildRecord | None:
    """The record of a build; None if there is none, or if it does not describe the archive beside it."""
    try:
        found = BuildRecord.model_validate_json((builder.folder / f"{build}.json").read_text())
        same = sha256_of(builder.archive(build)) == found.archive
    except (OSError, ValueError, ValidationError):
        return None
    return found if same and (found.build, found.built_by) == (build, builder.name) else None


def keep_archive(builder: Builder, build: str, arrived: Path) -> BuildRecord:
    """Records an archive that arrived and moves it into the folder. Raises HostFailed for an invalid one."""
    record = BuildRecord(
        build=build, built_by=builder.name, archive=sha256_of(arrived), files=_files(arrived, build, builder.name)
    )
    arrived.replace(builder.archive(build))
    fresh = builder.folder / f".{build}.{os.getpid()}.json"
    fresh.write_text(record.model_dump_json(indent=1))
    fresh.replace(builder.folder / f"{build}.json")
    return record


def _files(archive: Path, build: str, builder: str) -> dict[str, str]:
    """The sha256 of each file. Raises HostFailed unless the archive holds only plain files of this build."""
    found: dict[str, str] = {}
    total, manifest = 0, b""
    try:
        with tarfile.open(archive, "r|gz", tarinfo=_ShortMember) as packed:
            for number, member in enumerate(packed):
                if number > 2 * MOST_FILES:
                    raise _unfit(build, builder, f"it contains more than {2 * MOST_FILES} entries")
                folder, _, path = member.name.partition("/")
                if folder != build or (path and not _PATH.fullmatch(path)) or path in found:
                    raise _unfit(build, builder, f"it contains {member.name[:200]!a}")
                if member.isdir():
                    continue
                total += member.size
                if not member.isfile() or not path:
                    raise _unfit(build, builder, f"{member.name[:200]!a} is not a plain file")
                if total > MOST_BYTES or len(found) == MOST_FILES:
                    raise _unfit(build, builder, f"it is larger than {bytes_text(MOST_BYTES)} or {MOST_FILES} files")
                content = packed.extractfile(member)
                assert content is not None
                digest = hashlib.sha256()
                while block := content.read(BLOCK):
                    digest.update(block)
                    if path == MANIFEST and len(manifest) < MOST_MANIFEST_BYTES:
                        manifest += block
                found[path] = digest.hexdigest()
        stated = json.loads(manifest)
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, RecursionError) as error:
        raise _unfit(build, builder, f"it is unreadable ({type(error).__name__})") from None
    if not isinstance(stated, dict) or (stated.get("name"), stated.get("built_by")) != (build, builder):
        raise _unfit(build, builder, f"its {MANIFEST} belongs to another build")
    return found


def _unfit(build: str, builder: str, why: str) -> HostFailed:
    return HostFailed(f"{builder}: rejected the archive of {build}: {why}")
