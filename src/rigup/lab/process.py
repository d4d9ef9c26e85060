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
    """This process's environment, with Debian's folders of root's programs in PATH."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return {**os.environ, "PATH": path}


def run(words: Sequence[str | Path], check: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs a program and captures its output. With `check`, a failure raises HostFailed with the last lines."""
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
    """Waits until `condition` holds; returns False if it does not within `seconds`."""
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

    folder: for `name.pid` and `name.log`.
    within: words of a program that runs another one in its place (unshare, nice).
    """
    log, pid_file = folder / f"{name}.log", folder / f"{name}.pid"
    source = str(Path(rigup.__file__).resolve().parent.parent)
    words = [*within, sys.executable, "-m", module, *arguments]
    # A caller that was killed may have just started the program, with an empty file: wait for its content.
    wait_for(lambda: not pid_file.exists() or bool(pid_file.read_text()), 2)
    if pid := running(pid_file):
        return pid
    pid_file.write_text("")
    # A shell that ends at once detaches the program, so that it leaves no zombie; a second shell records its own
    # process id before it becomes the program, so that a killed caller never leaves a process without a pid file.
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
    """When a process started, in clock ticks since boot; "0" if it does not exist or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return "0"
    return "0" if fields[0] in "ZX" else fields[19]
