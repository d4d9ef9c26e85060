"""Weights that lie on a host, as `rigup lock` reads them there: this machine stands for the host."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

import pytest

from rigup.errors import HostFailed, InputError
from rigup.operations.weights import host_files
from tests.unit.local_host import LocalHost

BOX = cast(Any, LocalHost())


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
        (lambda path: path.symlink_to("/etc/passwd"), "box: {}: lies at /etc/passwd, which is not a place for weights"),
        (lambda path: path.symlink_to("/dev/zero"), "box: {}: lies at /dev/zero, which is not a place for weights"),
        (lambda path: path.symlink_to("/proc/self/environ"), "which is not a place for weights"),
    ],
)
def test_what_is_no_file_of_weights(make: Any, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    make(path)
    with pytest.raises(InputError) as raised:
        host_files.file_sizes(BOX, [str(path)])
    assert says.format(path) in raised.value.message
    assert raised.value.hint


def test_a_folder_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="box: /nowhere/at/all: does not exist"):
        host_files.file_names(BOX, "/nowhere/at/all")
