"""Runs the lab's programs: short ones to their end, and detached ones that outlive their starter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import rigup
from rigup.errors import HostFailed


def environment() -> dict[str, str]:
    """This process's environment, with the folders in PATH where Debian keeps what only root runs."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return {**os.environ, "PATH": path}


def run(words: Sequence[str | Path], check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, output captured. With `check`, a failure raises HostFailed with the last lines."""
    done = subprocess.run(
        words,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
    )
    if check and done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-5:])
        raise HostFailed(f"{' '.join(map(str, words))}: exited with {done.returncode}\n{tail}".rstrip())
    return done


def wait_for(condition: Callable[[], bool], seconds: float, step: float = 0.05) -> bool:
    """Waits until `condition` holds; False if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True


DETACH = 'exec >>"$1" 2>&1; shift; sh -c "$0" "$@" &'
KEEP_PID = r"""
read -r line </proc/self/stat
started() { shift 19; echo "${line%% *} $1"; }
started ${line##*) } >"$0"
exec "$@"
"""


def start(folder: Path, name: str, module: str, *arguments: str, within: Sequence[str] = ()) -> int:
    """Starts `python -m module arguments` detached, unless it runs; returns its process id.

    folder: where `name.pid` and `name.log` go.
    within: words in front, of a program that runs another in its own place (unshare, nice).
    """
    log, pid_file = folder / f"{name}.log", folder / f"{name}.pid"
    source = str(Path(rigup.__file__).resolve().parent.parent)
    words = [*within, sys.executable, "-m", module, *arguments]
    # An empty file is one that a caller who was killed has only just begun: that program counts.
    wait_for(lambda: not pid_file.exists() or bool(pid_file.read_text()), 2)
    if pid := running(pid_file):
        return pid
    pid_file.write_text("")
    # A shell that ends at once makes it nobody's child, which leaves no zombie; a second one notes its own process id
    # before it becomes the program, so that there is no moment in which a killed caller leaves a process without one.
    subprocess.run(
        ["sh", "-c", DETACH, KEEP_PID, log, pid_file, *words],  # noqa: S607  root's own PATH
        stdin=subprocess.DEVNULL,
        env={**environment(), "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"},
        cwd="/",
        start_new_session=True,
        check=True,
    )
    wait_for(lambda: pid_file.read_text().endswith("\n"), 10, 0.005)
    return int(pid_file.read_text().split()[0])


def running(pid_file: Path) -> int | None:
    """The process of a pid file, or None if it has ended. A reused pid does not count."""
    try:
        pid, started = pid_file.read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if started != "0" and _started(int(pid)) == started else None


def stop(pid_file: Path, seconds: float = 5) -> None:
    """Ends the process of a pid file, by force after `seconds`, and removes the file."""
    pid = running(pid_file)
    for how in (signal.SIGTERM, signal.SIGKILL):
        if pid is None:
            break
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            break
        if wait_for(lambda: running(pid_file) is None, seconds):
            break
    pid_file.unlink(missing_ok=True)


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a log, for a message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; "0" where there is none or only its exit code is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return "0"
    return "0" if fields[0] in "ZX" else fields[19]
