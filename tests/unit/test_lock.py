"""A lock that someone edited: the message names the line, the key and what is wrong there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rigup.errors import InputError
from rigup.lock import RESTORE_HINT, Lock, load_lock

TEXT = (Path(__file__).parents[2] / "rigup.lock").read_text()


def line_of(text: str, start: str) -> int:
    return 1 + next(number for number, line in enumerate(text.splitlines()) if line.startswith(start))


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ('sha256 = "b1', 'sha256 = "Xb1', "checkpoints[0].files[0].sha256", '" is not valid here'),
        ("size = 98", "size = -98", "checkpoints[0].files[0].size", "input should be greater than or equal to 0"),
        ('path = "Smol', 'path = "../Smol', "checkpoints[0].files[0].path", "is not valid here"),
        ('root = "', 'roof = "', "sources[0].root", "missing"),
        ('root = "', 'hat = 1\nroot = "', "sources[0].hat", "unknown key"),
        ('branch = "580"', 'branch = "590"', "driver", "branch 590"),
        ('nvcc-13-0 = "13', 'nvcc-13-0 = "x13', "cuda_toolkit.packages.cuda-nvcc-13-0", "is not valid here"),
        ('demo.py" = "sha256:', 'demo.py" = "md5:', "inputs.inventories/demo.py", "is not valid here"),
    ],
)
def test_line_and_key_of_what_is_wrong(tmp_path: Path, old: str, new: str, where: str, what: str) -> None:
    path = tmp_path / "rigup.lock"
    assert TEXT.count(old) >= 1
    path.write_text(TEXT.replace(old, new, 1))
    key = where.rpartition(".")[2]
    lines = {"missing": "[[sources]]", "driver": "[driver]", "inputs.inventories/demo.py": '"inventories/demo.py"'}
    line = line_of(path.read_text(), lines.get(what, lines.get(where, key)))
    with pytest.raises(InputError) as error:
        load_lock(path)
    assert error.value.message.startswith(f"{path}:{line}: {where}: ")
    assert error.value.message.endswith(what)
    assert error.value.hint == RESTORE_HINT


def test_an_entry_that_stands_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "rigup.lock"
    path.write_text(TEXT + "\n" + TEXT[TEXT.index("[[sources]]") :])
    with pytest.raises(InputError) as error:
        load_lock(path)
    line = path.read_text().splitlines().index("[[sources]]", line_of(TEXT, "[[sources]]")) + 1
    assert error.value.message == f"{path}:{line}: sources[1]: llama.cpp b11434 is listed twice"


def test_a_lock_from_a_newer_rigup(tmp_path: Path) -> None:
    path = tmp_path / "rigup.lock"
    path.write_text(TEXT.replace("schema = 1", "schema = 2\nnovelty = true", 1))
    with pytest.raises(InputError) as error:
        load_lock(path)
    assert error.value.message == f"{path}: schema: 2 is newer than this rigup understands (1)"
    assert error.value.hint == "upgrade rigup"


def test_what_is_neither_toml_nor_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rigup.lock"
    assert load_lock(path) == Lock()
    path.write_text("schema = \n")
    with pytest.raises(InputError, match="at line 1"):
        load_lock(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"rigup\.lock:1: not UTF-8"):
        load_lock(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match=r"rigup\.lock: not a regular"):
        load_lock(path)


@pytest.mark.parametrize("size", ["1e23", "99999999999999999", "-1", "inf"])
def test_a_size_that_no_file_has(tmp_path: Path, size: str) -> None:
    path = tmp_path / "rigup.lock"
    path.write_text(re.sub(r"(?m)^size = .*$", f"size = {size}", TEXT, count=1))
    with pytest.raises(InputError, match=r"checkpoints\[0\]\.files\[0\]\.size: "):
        load_lock(path)
