"""What programs say to systemd, and that they do their work where it does not listen."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rigup.operations.weights import sharing
from rigup.programs import program_file, unit_status
from roles import base


def test_a_status_is_said_to_who_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = f"rigup-{os.getpid()}@host"
        listener.bind(f"\0{name}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        unit_status.notify_status("1/2 compiling")
        assert listener.recv(100) == b"STATUS=1/2 compiling"


def test_where_nobody_listens_nothing_is_lost_or_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    unit_status.notify_status("1/2 compiling")
    monkeypatch.delenv("NOTIFY_SOCKET")
    unit_status.notify_status("1/2 compiling")
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_an_image_is_pulled_though_systemd_does_not_listen(tmp_path: Path) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NOTIFY_SOCKET": str(tmp_path / "gone")}
    words = [sys.executable, str(program_file("pull_image.py")), "docker.io/x@sha256:0", str(tmp_path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


LOAD = """
import runpy, sys
sys.path[0] = "."
for program in sys.argv[1:]:
    sys.dont_write_bytecode = False
    runpy.run_path(program, run_name="loaded")
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) and not module.__file__.startswith(sys.base_prefix):
            del sys.modules[name]
"""


@pytest.mark.parametrize("sent", [base.PROGRAMS, (*base.PROGRAMS, *sharing.PROGRAMS)], ids=["base", "sharing"])
def test_each_program_finds_beside_it_what_it_needs_and_leaves_nothing_there(
    sent: tuple[str, ...], tmp_path: Path
) -> None:
    for program in sent:
        shutil.copy(program_file(program), tmp_path / program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    begun = [program for program in sorted(set(sent)) if "__main__" in program_file(program).read_text()]
    words = [sys.executable, "-S", "-c", LOAD, *begun]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set(sent))
