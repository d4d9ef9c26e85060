"""Long steps (compile, download) run under systemd on the host, so they outlive a lost connection or a killed rigup.

A job is a transient unit with a fixed name: the next run finds it and picks it up instead of starting a second one.
Cancelling (Ctrl-C) stops the unit; nothing is left running.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

import gevent

from rigup.errors import HostFailed, RigupError
from rigup.layout import WORKER_USER
from rigup.operations import remote
from rigup.operations.progress import Progress, report

POLL_SECONDS = 1.0
RECONNECT_SECONDS = 180.0
PAUSE_SECONDS = 300
STOP_SECONDS = 120.0  # systemd kills what has not ended after 90
GOING = ("active", "activating", "deactivating")
SHOWN = "LoadState,ActiveState,Result,ExecMainStatus,StatusText"


class Cancelled(RigupError):
    """Raised in a host's work when the user asked to stop."""

    exit_code = 130


@dataclass(frozen=True)
class Job:
    """One long step: `unit` names it on the host, `command` is its argv, `writable` all it may write to.

    shown: what the command sees of a folder, (folder, {path in it: what really lies there}), and nothing else of it.
    gpus: whether it sees the machine's devices. paused: units that are stopped while it runs, and started when it ends
    in whatever way, by systemd itself.
    as_root: for what unpacks a file system, with its owners and set-user-id files; else it runs as the worker.
    """

    unit: str
    step: str
    command: tuple[str, ...]
    writable: tuple[str, ...]
    unit_of_progress: str = ""
    private_network: bool = False
    as_root: bool = False
    gpus: bool = False
    paused: tuple[str, ...] = ()
    shown: tuple[str, dict[str, str]] | None = None


_cancelled = False


def cancel() -> None:
    """From now on every running job is stopped and every waiting one refuses to start."""
    global _cancelled
    _cancelled = True


def cancelled() -> bool:
    """Whether the user asked to stop."""
    return _cancelled


def run(host: Any, job: Job) -> None:
    """Starts the job, or picks up the one that is running, and returns when it has ended well.

    Raises HostFailed with the job's own last words, or Cancelled. What the job made is for the caller to check.
    """
    if not going(host, job):
        _start(host, job)
    try:
        _follow(host, job)
    except BaseException:
        if _cancelled:
            _stop(host, job)
        raise


def going(host: Any, job: Job) -> bool:
    """Whether the job of an earlier run is at work; one that somebody stops is waited for, as it may still write.

    Whoever is to prepare what a job works on asks this before. Raises HostFailed, Cancelled, or one of LOST.
    """
    state, deadline = "", time.monotonic() + STOP_SECONDS
    while not _cancelled:
        state = _state(host, job)["ActiveState"]
        if state != "deactivating":
            break
        if time.monotonic() > deadline:
            raise HostFailed(
                f"{host.name}: {job.step}: {job.unit} is being stopped, and has not ended in {STOP_SECONDS:.0f} s",
                f"run the same command again; on the host: systemctl status {job.unit}",
            )
        _wait(host, job)
    if _cancelled:
        raise Cancelled(f"{host.name}: {job.step}: cancelled before it started")
    return state in ("active", "activating")


def at_work(host: Any, job: Job) -> bool:
    """Whether anything of the job runs, be it while it is being stopped. Raises one of LOST."""
    return _state(host, job)["ActiveState"] in GOING


def _wait(host: Any, job: Job) -> None:
    report(Progress(host.name, job.step, text="waiting for it to stop"))
    gevent.sleep(POLL_SECONDS)


def _paused(job: Job) -> tuple[str, ...]:
    """What stops units before the job and starts them after it, as root ("+"), without waiting until they answer.

    A unit that was started a few times before would refuse one more start, had its count not been reset.
    """
    stop = (f"ExecStartPre=+systemctl stop {unit}" for unit in job.paused)
    words = ("-+systemctl reset-failed", "+systemctl start --no-block")
    start = (f"ExecStopPost={word} {unit}" for unit in job.paused for word in words)
    return (*stop, *start, f"TimeoutStartSec={PAUSE_SECONDS}") if job.paused else ()


def _start(host: Any, job: Job) -> None:
    properties = (
        "NotifyAccess=all",
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        *(() if job.as_root or job.gpus else ("PrivateDevices=yes",)),
        *(() if job.as_root else ("RestrictSUIDSGID=yes",)),
        *_paused(job),
        "Nice=5",
        f"PrivateNetwork={'yes' if job.private_network else 'no'}",
        f"ReadWritePaths={' '.join(job.writable)}",
        *_shown(job),
    )
    # a unit that failed in an earlier run keeps its name until it is reset
    remote.ask(host, "systemctl", "reset-failed", job.unit)
    remote.tell(
        host,
        "systemd-run",
        "--quiet",
        "--service-type=exec",
        f"--unit={job.unit}",
        f"--description=rigup: {job.step}",
        *(() if job.as_root else (f"--uid={WORKER_USER}", f"--gid={WORKER_USER}")),
        *(f"--property={value}" for value in properties),
        *job.command,
        timeout=PAUSE_SECONDS if job.paused else 60,
    )


def _shown(job: Job) -> tuple[str, ...]:
    if job.shown is None:
        return ()
    folder, paths = job.shown
    return (f"TemporaryFileSystem={folder}:ro", *(f"BindPaths={real}:{path}" for path, real in paths.items()))


def _follow(host: Any, job: Job) -> None:
    lost_since: float | None = None
    while not _cancelled:
        try:
            state = _state(host, job)
        except remote.LOST:
            lost_since = lost_since or time.monotonic()
            if time.monotonic() - lost_since > RECONNECT_SECONDS:
                raise HostFailed(
                    f"{host.name}: {job.step}: connection lost for {RECONNECT_SECONDS:.0f} s",
                    "the step goes on there by itself: run rigup apply again when the host answers",
                ) from None
            report(Progress(host.name, job.step, text="connection lost, trying again"))
            gevent.sleep(POLL_SECONDS)
            remote.reconnect(host)
            continue
        lost_since = None
        if state["ActiveState"] == "failed":
            raise HostFailed(
                f"{host.name}: {job.step}: {_last_words(host, job)}", f"on the host: journalctl -u {job.unit}"
            )
        if state["ActiveState"] not in GOING:
            return
        _report(host, job, state["StatusText"])
        gevent.sleep(POLL_SECONDS)
    raise Cancelled(f"{host.name}: {job.step}: cancelled")


def _state(host: Any, job: Job) -> dict[str, str]:
    output = remote.ask(host, "systemctl", "show", job.unit, f"--property={SHOWN}", timeout=15)
    found = dict(line.split("=", 1) for line in output.stdout.splitlines() if "=" in line)
    if "ActiveState" not in found:
        raise OSError(f"systemctl show {job.unit}: {output.last_line}")
    return {"StatusText": ""} | found


def _report(host: Any, job: Job, status: str) -> None:
    counted = re.match(r"(\d+)/(\d+)\s*(.*)", status)
    done, total, text = (int(counted[1]), int(counted[2]), _beside(counted[3], job)) if counted else (0, 0, status)
    report(Progress(host.name, job.step, done, total, job.unit_of_progress, text))


def _beside(text: str, job: Job) -> str:
    """What a status says besides numbers and their unit."""
    return text.removeprefix(job.unit_of_progress).lstrip(", ")


def _last_words(host: Any, job: Job) -> str:
    lines = remote.ask(host, "journalctl", "--no-pager", "-o", "cat", "-n", "40", "-u", job.unit).stdout.splitlines()
    own = [line for line in lines if line.strip() and not line.startswith((f"{job.unit}", "Started ", "Starting "))]
    return own[-1].strip() if own else "it ended without a word"


def _ended(host: Any, job: Job) -> bool:
    """Whether the job ends, within STOP_SECONDS. Raises one of LOST."""
    deadline = time.monotonic() + STOP_SECONDS
    while at_work(host, job):
        if time.monotonic() > deadline:
            return False
        _wait(host, job)
    return True


def _stop(host: Any, job: Job) -> None:
    try:
        remote.ask(host, "systemctl", "stop", "--no-block", job.unit, timeout=30)
        if not _ended(host, job):
            report(Progress(host.name, job.step, text=f"{job.unit} was told to stop, and has not ended yet"))
    except remote.LOST:
        report(Progress(host.name, job.step, text="could not be stopped: the connection is gone"))
