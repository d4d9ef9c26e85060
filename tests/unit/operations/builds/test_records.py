"""What of a builder's is kept for other hosts: archives of plain files, described by hashes that were made here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.builds import records
from rigup.operations.builds.records import ReceivedArchive, keep_archive, read_record
from rigup.settings import Builder
from tests.hostile import bounded

NAME = "llama.cpp-b1-0123456789ab"
MANIFEST = json.dumps({"name": NAME, "built_by": "gpu1"}).encode()
GOOD: dict[str, bytes] = {"manifest.json": MANIFEST, "bin/llama-server": b"program"}


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    """A builder without any record."""
    folder = tmp_path / "records"
    folder.mkdir()
    return Builder("gpu1", folder)


def packed(tmp_path: Path, files: dict[str, bytes], *more: tarfile.TarInfo) -> Path:
    """An archive of these files in the folder of the build, and of further members."""
    path = tmp_path / "arrived"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in more:
            archive.addfile(entry)
    return path


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(entry, key, value)
    return entry


def test_a_record_holds_the_hash_of_every_file_and_is_found_again(builder: Builder, tmp_path: Path) -> None:
    record = keep_archive(builder, NAME, packed(tmp_path, GOOD, member(f"{NAME}/lib", type=tarfile.DIRTYPE)))
    assert record.files == {name: hashlib.sha256(content).hexdigest() for name, content in GOOD.items()}
    assert read_record(builder, NAME) == record
    assert record.sums.splitlines()[1] == f"{hashlib.sha256(b'program').hexdigest()}  bin/llama-server"
    assert read_record(Builder("gpu2", builder.folder), NAME) is None, "another one's"


@pytest.mark.parametrize("damage", ["archive", "record", "gone"])
def test_an_archive_that_is_not_the_recorded_one_is_none(builder: Builder, tmp_path: Path, damage: str) -> None:
    keep_archive(builder, NAME, packed(tmp_path, GOOD))
    if damage == "gone":
        builder.archive(NAME).unlink()
    elif damage == "archive":
        builder.archive(NAME).write_bytes(packed(tmp_path, {**GOOD, "bin/llama-server": b"planted"}).read_bytes())
    else:
        (builder.folder / f"{NAME}.json").write_text("[1]")
    assert read_record(builder, NAME) is None


@pytest.mark.parametrize(
    "more",
    [
        member(f"{NAME}/bin/x", type=tarfile.SYMTYPE, linkname="/etc/shadow"),
        member(f"{NAME}/bin/x", type=tarfile.LNKTYPE, linkname=f"{NAME}/manifest.json"),
        member(f"{NAME}/bin/x", type=tarfile.CHRTYPE),
        member(f"{NAME}/../x"),
        member(f"{NAME}/.hidden"),
        member(f"{NAME}/bin/a b"),
        member(f"{NAME}/bin/a\nb"),
        member("/etc/passwd"),
        member("other/bin/x"),
        member(f"{NAME}/bin/llama-server"),
        member(NAME),
    ],
    ids=[
        "symlink",
        "hard link",
        "device",
        "above",
        "hidden",
        "space",
        "newline",
        "absolute",
        "beside",
        "twice",
        "root",
    ],
)
def test_an_archive_with_anything_but_plain_files_of_the_build_is_not_kept(
    builder: Builder, tmp_path: Path, more: tarfile.TarInfo
) -> None:
    with pytest.raises(HostFailed, match=f"^gpu1: rejected the archive of {NAME}: "):
        keep_archive(builder, NAME, packed(tmp_path, GOOD, more))
    assert read_record(builder, NAME) is None


def test_an_archive_of_folders_without_end_is_not_kept(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_FILES", 100)
    folders = [member(f"{NAME}/lib{number}", type=tarfile.DIRTYPE) for number in range(300)]
    with pytest.raises(HostFailed, match="more than 200 entries"):
        keep_archive(builder, NAME, packed(tmp_path, GOOD, *folders))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_SPARSE])
def test_an_archive_whose_names_take_all_memory_is_not_kept(builder: Builder, tmp_path: Path, kind: bytes) -> None:
    path, entry = tmp_path / "arrived", member(f"{NAME}/x", type=kind, size=600_000_000)
    with gzip.open(path, "wb", 1) as archive:
        archive.write(entry.tobuf(tarfile.GNU_FORMAT))
        for _ in range(600):
            archive.write(bytes(1_000_000))
    with bounded(10, 64), pytest.raises(HostFailed, match="unreadable"):
        keep_archive(builder, NAME, path)


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"[1]",
        b"{",
        json.dumps({"name": "other", "built_by": "gpu1"}).encode(),
        json.dumps({"name": NAME, "built_by": "gpu2"}).encode(),
        json.dumps({"name": NAME}).encode(),
    ],
)
def test_an_archive_of_another_build_or_another_builder_is_not_kept(
    builder: Builder, tmp_path: Path, manifest: bytes
) -> None:
    with pytest.raises(HostFailed):
        keep_archive(builder, NAME, packed(tmp_path, {**GOOD, "manifest.json": manifest}))


def test_what_cannot_be_read_or_is_too_large_is_not_kept(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = packed(tmp_path, GOOD).read_bytes()
    for content in (b"", b"not gzip", whole[: len(whole) // 2]):
        (tmp_path / "arrived").write_bytes(content)
        with pytest.raises(HostFailed):
            keep_archive(builder, NAME, tmp_path / "arrived")
    monkeypatch.setattr(records, "MOST_BYTES", 10)
    with ReceivedArchive(tmp_path / "arriving", "wb") as file:
        file.write(b"0123456789")
        with pytest.raises(OSError, match="received more than 10 B"):
            file.write(b"0")
    with pytest.raises(HostFailed, match="larger than"):
        keep_archive(builder, NAME, packed(tmp_path, GOOD))
