"""Builds of a builder, stored on the controlling machine: the archive of each build and the hash of every file.

A record is made here of the archive as it arrived, so that no host's word is part of it, and only of a build that the
builder's own run compiled. Other hosts get the archive that the record describes, or compile for themselves.
"""

from __future__ import annotations

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
from rigup.settings import Builder
from rigup.sources.downloads import sha256_of
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
        """As sha256sum --check reads it."""
        return "".join(f"{sha256}  {path}\n" for path, sha256 in self.files.items())


class ReceivedArchive(io.FileIO):
    """The file that an archive is written to while it arrives, as long as it is not larger than any could be."""

    def write(self, block: Any) -> int:
        """As a file does. Raises OSError for what is too much."""
        if self.tell() + len(block) > MOST_BYTES:
            raise OSError(f"received more than {bytes_text(MOST_BYTES)}")
        return super().write(block)


class _ShortMember(tarfile.TarInfo):
    """A member whose long name is read into memory only where it is no longer than a path can be."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        plain = self.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
        if (self.size > MOST_NAME_BYTES and not plain) or self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("what comes before a file is too long")
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
    """Records the archive that arrived, which is moved into the folder. Raises HostFailed for an unfit one."""
    record = BuildRecord(
        build=build, built_by=builder.name, archive=sha256_of(arrived), files=_files(arrived, build, builder.name)
    )
    arrived.replace(builder.archive(build))
    fresh = builder.folder / f".{build}.{os.getpid()}.json"
    fresh.write_text(record.model_dump_json(indent=1))
    fresh.replace(builder.folder / f"{build}.json")
    return record


def _files(archive: Path, build: str, builder: str) -> dict[str, str]:
    """The sha256 of each file. Raises HostFailed unless all is plain files below `build`, in a build by `builder`."""
    found: dict[str, str] = {}
    total, manifest = 0, b""
    try:
        with tarfile.open(archive, "r|gz", tarinfo=_ShortMember) as packed:
            for number, member in enumerate(packed):
                if number > 2 * MOST_FILES:
                    raise _unfit(build, builder, f"it holds more than {2 * MOST_FILES} entries")
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
        said = json.loads(manifest)
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, RecursionError) as error:
        raise _unfit(build, builder, f"it is unreadable ({type(error).__name__})") from None
    if not isinstance(said, dict) or (said.get("name"), said.get("built_by")) != (build, builder):
        raise _unfit(build, builder, f"its {MANIFEST} belongs to another build")
    return found


def _unfit(build: str, builder: str, why: str) -> HostFailed:
    return HostFailed(f"{builder}: rejected the archive of {build}: {why}")
