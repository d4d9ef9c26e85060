"""Weights that lie on a host, as `rigup lock` reads them there: this machine stands for the host."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from rigup.errors import HostFailed, InputError, Refused
from rigup.facts.bounds import Unreadable
from rigup.lock import LockedFile
from rigup.operations.primitives import jobs, remote
from rigup.operations.service.history import RetainedRelease
from rigup.operations.weights import host_files
from rigup.plan import Checkpoint
from rigup.programs.weights.weights_folder import RECEIPT
from rigup.run import rollback
from tests.unit.local_host import LocalHost

BOX = cast(Any, LocalHost())


class FactHost(LocalHost):
    """Also answers facts, as pyinfra does."""

    def get_fact(self, fact: Any, **arguments: Any) -> Any:
        line = fact().command(**arguments)
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
        return fact().process(done.stdout.splitlines())


def test_names_sizes_parts_and_hashes(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "x.gguf").symlink_to("real")
    (tmp_path / "a name with blanks").touch()
    (tmp_path / "folder").mkdir()
    assert host_files.file_names(BOX, str(tmp_path)) == ("real", "x.gguf")
    path = str(tmp_path / "x.gguf")
    assert host_files.file_sizes(BOX, [path]) == {path: 10_240}
    assert host_files.read_part(BOX, path, 250, 20) == (bytes(range(256)) * 2)[250:270]
    assert host_files.sha256(BOX, path, 10_240) == hashlib.sha256((tmp_path / "real").read_bytes()).hexdigest()
    with pytest.raises(HostFailed, match="could not be read"):
        host_files.read_part(BOX, path, 10_000, 1000)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "box: {}: does not exist"),
        (lambda path: path.symlink_to("/nowhere"), "box: {}: does not exist"),
        (lambda path: path.symlink_to(path), "box: {}: does not exist"),
        (lambda path: path.mkdir(), "box: {}: not a regular file"),
        (
            lambda path: path.symlink_to("/etc/passwd"),
            "box: {}: is at /etc/passwd, where rigup does not accept weights",
        ),
        (lambda path: path.symlink_to("/dev/zero"), "box: {}: is at /dev/zero, where rigup does not accept weights"),
        (lambda path: path.symlink_to("/proc/self/environ"), "where rigup does not accept weights"),
    ],
)
def test_what_is_not_a_file_of_weights(make: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    make(path)
    with pytest.raises(InputError) as raised:
        host_files.file_sizes(BOX, [str(path)])
    assert says.format(path) in raised.value.message
    assert raised.value.hint


def test_more_files_than_a_command_line_has_room_for(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{'x' * 240}-{number}.json") for number in range(600)]
    for path in paths:
        Path(path).write_bytes(b"{}")
    assert host_files.file_sizes(BOX, paths) == dict.fromkeys(paths, 2)


def test_a_folder_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="box: /nowhere/at/all: does not exist"):
        host_files.file_names(BOX, "/nowhere/at/all")


@pytest.mark.parametrize(
    ("failed", "hint"),
    [
        (HostFailed("box: weights: /models/x.gguf: sha256 is 1, not the locked 2"), "put the locked file there; or, "),
        (HostFailed("box: weights: connection lost for 180 s", "run rigup apply again"), "run rigup apply again"),
        (HostFailed("box: weights: /models/x.gguf: services may not read it; on the host: chmod o+r"), None),
    ],
)
def test_only_files_that_differ_are_a_reason_to_lock_again(
    failed: HostFailed, hint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LockedFile(path="x.gguf", size=1, sha256="2" * 64)
    lying = Checkpoint(
        repo="local/x", quant="Q8_0", bytes=1, revision="a" * 40, files=(file,), location="/models/x.gguf"
    )

    def run(*_: Any) -> None:
        raise failed

    monkeypatch.setattr(host_files, "file_sizes", lambda *_: {"/models/x.gguf": 1})
    monkeypatch.setattr(host_files, "_prepare", lambda *_: None)
    monkeypatch.setattr(remote, "write_file", lambda *_: None)
    monkeypatch.setattr(jobs, "run", run)
    with pytest.raises(HostFailed) as raised:
        host_files._hash(BOX, lying, "/weights")
    assert raised.value.message == failed.message
    assert raised.value.hint is None if hint is None else raised.value.hint and raised.value.hint.startswith(hint)


def test_an_earlier_release_does_not_run_on_files_that_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its unit shows whatever lies at the path now; rigup has no copy of what lay there then."""
    box, place, folder = cast(Any, FactHost()), tmp_path / "models", tmp_path / "weights"
    monkeypatch.setattr(remote, "as_worker", lambda *words: words)
    monkeypatch.setattr(rollback, "weights_folder", lambda repo, revision: str(folder))
    checkpoint = {"repo": "local/x", "quant": "Q8_0", "revision": "a" * 40, "place": str(place)}
    release = RetainedRelease("chat", 3, 0, False, True, {"checkpoint": checkpoint})
    place.mkdir()
    folder.mkdir()
    weights = place / "x.gguf"
    weights.write_bytes(b"as locked")
    state = weights.stat()
    noted = {"path": "x.gguf", "size": 9, "sha256": "0" * 64, "mtime_ns": state.st_mtime_ns, "inode": state.st_ino}
    (folder / RECEIPT).write_text(json.dumps({"schema": 1, "files": [noted]}))
    rollback._check_unchanged(box, release)
    rollback._check_unchanged(box, RetainedRelease("chat", 2, 0, False, True, {"checkpoint": {"repo": "org/x"}}))
    os.utime(weights, ns=(0, state.st_mtime_ns + 1))
    with pytest.raises(Refused) as raised:
        rollback._check_unchanged(box, release)
    assert raised.value.message == (f"box: chat: release 3 cannot run: not as it was hashed then: {weights}")
    assert raised.value.hint
    (folder / RECEIPT).unlink()
    assert host_files.changed_files(box, str(folder), str(place)) == (str(place),)


@pytest.mark.parametrize(("receipt", "place"), [("[1]", "/models"), ('{"files": 1}', "/models"), ("{}", "/../etc")])
def test_a_receipt_or_a_place_that_is_none(
    receipt: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "as_worker", lambda *words: words)
    (tmp_path / RECEIPT).write_text(receipt)
    with pytest.raises(Unreadable):
        host_files.changed_files(BOX, str(tmp_path), place)
