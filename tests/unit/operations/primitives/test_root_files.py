"""What a host is asked about folders, programs and weights, in a real shell, and what is made of the answers."""

from __future__ import annotations

import getpass
import grp
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigup.facts.verified_files import VerifiedFiles
from rigup.operations.primitives import root_files
from rigup.operations.primitives.root_files import FileDigests, FileModes, LooseFiles
from rigup.programs.weights.weights_folder import FetchJob, File, Receipt
from tests.unit.local_host import LocalHost

OWNER = f"{getpass.getuser()}:{grp.getgrgid(os.getgid()).gr_name}"


def asked(fact: Any, *arguments: Any) -> Any:
    done = subprocess.run(["sh", "-c", fact.command(*arguments)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return fact.process(done.stdout.splitlines())


def test_folders_are_told_with_mode_and_owner_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("a b")
    (tmp_path / "secret").mkdir(mode=0o700)
    (tmp_path / "file").touch(mode=0o644)
    names = ("a b", "link", "secret", "file", "missing")
    found = asked(FileModes(), tuple(str(tmp_path / name) for name in names))
    assert {Path(path).name: stands for path, stands in found.items()} == {
        "a b": f"directory|755|{OWNER}",
        "link": f"directory|755|{OWNER}",
        "secret": f"directory|700|{OWNER}",
        "file": f"regular file|644|{OWNER}",
    }


def test_programs_are_told_with_their_hashes(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("pass\n")
    (tmp_path / "one.py").chmod(0o600)
    digest = hashlib.sha256(b"pass\n").hexdigest()
    assert asked(FileDigests(), str(tmp_path), ("one.py", "two.py")) == {"one.py": f"{digest} regular file|600|{OWNER}"}
    assert asked(FileDigests(), str(tmp_path / "missing"), ("one.py",)) == {}


@pytest.mark.skipif(os.getuid() != 0, reason="gives folders away, which root alone can")
def test_what_others_can_change_is_found_and_put_right_and_no_link_is_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("")
    os.chown(victim, 1, 1)
    victim.chmod(0o666)
    theirs, closed = tmp_path / "theirs", tmp_path / "closed"
    (closed / "a").mkdir(parents=True)
    theirs.mkdir()
    os.chown(theirs, 1, 1)
    assert asked(LooseFiles(), (str(closed),)) == ()
    (closed / "a/link").symlink_to(victim)
    assert asked(LooseFiles(), (str(closed),)) == ()
    (closed / "a").chmod(0o777)
    os.chown(closed / "a/link", 1, 1, follow_symlinks=False)
    assert asked(LooseFiles(), (str(closed),)) == (str(closed),)

    root_files._make(LocalHost(), (str(theirs),), (str(closed),), (str(closed / "a/absent"),))
    assert asked(LooseFiles(), (str(closed),)) == ()
    assert asked(FileModes(), (str(theirs), str(closed / "a"))) == {
        str(theirs): "directory|755|root:root",
        str(closed / "a"): "directory|755|root:root",
    }
    assert (victim.stat().st_uid, victim.stat().st_mode & 0o777) == (1, 0o666)


@pytest.fixture
def german(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `stat` that answers as coreutils do on a German host, unless it is asked in English."""
    stat = tmp_path / "bin/stat"
    stat.parent.mkdir()
    stat.write_text(f"""#!/bin/sh
if [ "$LC_ALL" = C ]; then exec {shutil.which("stat")} "$@"; fi
{shutil.which("stat")} "$@" | sed 's/^directory/Verzeichnis/; s/^regular file/reguläre Datei/; s/[.]/,/'
""")
    stat.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stat.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")


@pytest.mark.usefixtures("german")
def test_a_host_with_another_language_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "weights/a.gguf"
    path.parent.mkdir(mode=0o755)
    path.write_text("a")
    path.chmod(0o644)
    receipt = Receipt(path.parent)
    receipt.add(File("a.gguf", 1, "a" * 64))
    receipt.write(FetchJob(path.parent, ()))
    assert asked(FileModes(), (str(path.parent),)) == {str(path.parent): f"directory|755|{OWNER}"}
    digest = hashlib.sha256(b"a").hexdigest()
    assert asked(FileDigests(), str(path.parent), ("a.gguf",)) == {"a.gguf": f"{digest} regular file|644|{OWNER}"}
    assert verified(path.parent) == {"a.gguf": (1, "a" * 64)}


def test_an_empty_file_of_a_checkpoint_counts_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    receipt = Receipt(tmp_path)
    receipt.add(File("a.gguf", 0, "e" * 64))
    receipt.write(FetchJob(tmp_path, ()))
    assert verified(tmp_path) == {"a.gguf": (0, "e" * 64)}


def verified(folder: Path) -> Any:
    return asked(VerifiedFiles(), str(folder), ("a.gguf", "sub/b c.gguf"))


def test_weights_count_as_their_receipt_says_until_somebody_touches_them(tmp_path: Path) -> None:
    files = (File("a.gguf", 1, "a" * 64), File("sub/b c.gguf", 2, "b" * 64))
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.gguf").write_text("a")
    (tmp_path / "sub/b c.gguf").write_text("bb")
    assert verified(tmp_path) == {}, "nothing vouches for them yet"
    receipt = Receipt(tmp_path)
    for file in files:
        receipt.add(file)
    receipt.write(FetchJob(tmp_path, files))
    assert verified(tmp_path) == {"a.gguf": (1, "a" * 64), "sub/b c.gguf": (2, "b" * 64)}

    os.utime(tmp_path / "a.gguf", ns=(0, 123456789))
    assert verified(tmp_path) == {"sub/b c.gguf": (2, "b" * 64)}
    (tmp_path / "sub/b c.gguf").unlink()
    assert verified(tmp_path) == {}
    assert verified(tmp_path / "missing") == {}


def test_a_receipt_that_is_cut_short_vouches_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_text("a")
    (tmp_path / ".rigup-receipt.json").write_text('{"schema": 1, "files": [{"path": "a.gg')
    assert verified(tmp_path) == {}
