"""What a build says of itself, and the one line where it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rigup.programs import check_build


def said(tmp_path: Path, script: str, mode: int = 0o755) -> tuple[int, str]:
    """Exit status and standard error of the check of a build that is this script."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/server").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin/server").chmod(mode)
    words = [sys.executable, check_build.__file__, str(tmp_path), "4711", "bin/server", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    ("script", "status", "line"),
    [
        ('[ "$1" = --version ] && echo version 4711 >&2', 0, ""),
        ("echo version 12; echo more", 1, 'bin/server --version: expected "4711" in its output, got: version 12 more'),
        ("true", 1, 'bin/server --version: expected "4711" in its output, got: no output'),
        ("echo 4711; exit 3", 1, "bin/server --version: exit status 3: 4711"),
        ("kill -9 $$", 1, "bin/server --version: ended by signal 9 (Killed): no output"),
        ("kill -40 $$", 1, "bin/server --version: ended by signal 40 (Real-time signal 6): no output"),
        ("printf '\\377'", 1, 'bin/server --version: expected "4711" in its output, got: \ufffd'),
    ],
)
def test_the_answer_must_be_the_expected_one(tmp_path: Path, script: str, status: int, line: str) -> None:
    assert said(tmp_path, script) == (status, line)


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    assert said(tmp_path, "true", mode=0o644) == (1, "cannot run bin/server: Permission denied")


def test_what_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_build, "CHECK_SECONDS", 0.2)
    with pytest.raises(SystemExit, match=r"/bin/sleep 60: no answer within 0\.2 s"):
        check_build.answer_of(Path("/"), ["/bin/sleep", "60"], "")
