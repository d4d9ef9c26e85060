"""The program that speaks to HAProxy's admin socket, with a stand-in for HAProxy."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.programs import program_file
from rigup.programs.gateway import gateway_admin

PROGRAM = program_file("gateway_admin.py")


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[list[str]]:
    """What was said to a socket that repeats each command and closes, as HAProxy does."""
    said: list[str] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "admin.sock"))
        server.listen()

        def serve() -> None:
            for _ in range(2):
                link, _ = server.accept()
                with link:
                    text = link.recv(65536).decode()
                    said.append(text)
                    link.sendall(f"heard {text.splitlines()[0]}\n\n".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield said


def told(folder: Path, commands: list[str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", str(PROGRAM), str(folder / "admin.sock")]
    return subprocess.run(words, input=json.dumps(commands), capture_output=True, text=True, timeout=60)


def test_each_command_has_its_answer_and_a_payload_its_end(tmp_path: Path, heard: list[str]) -> None:
    done = told(tmp_path, ["show info", "add map @1 /m <<\na b"])
    assert json.loads(done.stdout) == ["heard show info", "heard add map @1 /m <<"]
    assert heard == ["show info\n", "add map @1 /m <<\na b\n\n"]


def test_an_answer_that_drips_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_admin, "TOTAL_SECONDS", 0.3)
    monkeypatch.setattr(sys, "stdin", io.StringIO('["show info"]'))
    path, over = str(tmp_path / "admin.sock"), threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def drip() -> None:
            link, _ = server.accept()
            with link, contextlib.suppress(OSError):
                while not over.wait(0.02):
                    link.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        try:
            assert gateway_admin.main(path) == 1
        finally:
            over.set()
            thread.join()


def test_no_gateway_is_one_line_of_text(tmp_path: Path) -> None:
    done = told(tmp_path, ["show info"])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "admin.sock" in done.stderr
