"""Detached processes: pid files that never point at a stranger."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rigup.errors import HostFailed
from rigup.lab import process


def ended(pid: int) -> bool:
    """Whether a process is gone, but perhaps for an exit code that init has yet to collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_a_detached_process_runs_logs_and_is_stopped(tmp_path: Path) -> None:
    pid = process.start(tmp_path, "server", "http.server", "0", "--bind", "127.0.0.1")
    assert process.running(tmp_path / "server.pid") == pid
    assert os.getsid(pid) != os.getsid(0)
    assert process.wait_for(lambda: "Serving HTTP" in process.tail(tmp_path / "server.log"), 20)
    process.stop(tmp_path / "server.pid")
    assert not (tmp_path / "server.pid").exists()
    assert process.wait_for(lambda: ended(pid), 20)


def test_a_pid_that_another_process_has_by_now_is_not_stopped(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (tmp_path / "server.pid").write_text(f"{stranger.pid} 1\n")
        assert process.running(tmp_path / "server.pid") is None
        process.stop(tmp_path / "server.pid")
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("text", ["", "garbage", "999999999 5", "0 0"])
def test_a_pid_file_that_says_nothing_is_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.pid").write_text(text)
    assert process.running(tmp_path / "server.pid") is None


def test_a_process_that_ignores_the_request_is_ended_by_force(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(tmp_path / 'deaf')!r}).touch()\n"
        "time.sleep(600)\n"
    )
    within = ["env", "-C", str(tmp_path)]
    pid = process.start(tmp_path, "deaf", "deaf", within=within)
    assert process.wait_for((tmp_path / "deaf").exists, 20)
    process.stop(tmp_path / "deaf.pid", seconds=0.2)
    assert process.wait_for(lambda: ended(pid), 20)


def test_a_failed_program_is_reported_with_its_words_and_last_lines() -> None:
    with pytest.raises(HostFailed, match=r"^sh -c echo why; exit 3: exited with 3\nwhy$"):
        process.run(["sh", "-c", "echo why; exit 3"])
