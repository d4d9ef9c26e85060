"""Long steps (compile, download) run under systemd on the host, so they survive a lost connection or a killed rigup.

A job is a transient unit with a fixed name: the next run finds and continues it instead of starting a second one.
Cancelling (Ctrl-C) stops the unit; nothing keeps running. A job without progress for quiet_seconds is stopped, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import gevent

from rigup.errors import HostFailed, RigupError
from rigup.host import Host
from rigup.layout import WORKER_USER
from rigup.operations.primitives import proxy, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.units import seconds_text

POLL_SECONDS = 1.0
RECONNECT_SECONDS = 180.0
PAUSE_SECONDS = 300
STOP_SECONDS = 120.0  # systemd kills remaining processes after 90
QUIET_SECONDS = 900.0
"""For jobs that compile or unpack: even the slowest single step of an engine's build uses CPU time."""
LARGEST_FILE = 2**34
"""For files that are compiled, installed or downloaded without a size in the lock."""
GOING = ("active", "activating", "deactivating")
SHOWN = "LoadState,ActiveState,Result,ExecMainStatus,StatusText,CPUUsageNSec"
WORKED_NS = 1_000_000_000
"""CPU time since the last check that shows that a job works; an idle job that only polls uses far less."""
_COUNT = r"[0-9]{1,20}"
_COUNTED = r"([0-9]{1,15})/([0-9]{1,15})(?![0-9])\s*(.*)"


class Cancelled(RigupError):
    """Raised in a host's work when the user asked to stop."""

    exit_code = 130


@dataclass(frozen=True)
class Job:
    """One long step: `unit` is its name on the host, `command` its argv, `writable` the only paths that it may write.

    readable: files of the host, by the path at which the command sees them, read-only.
    shown: a folder of which the command sees only these entries: (folder, {path in it: real path}).
    gpus: whether it sees the machine's devices. paused: units that systemd stops before the job and starts after it,
    however it ends. pause_seconds: how long they may take to stop.
    as_root: for jobs that unpack a file system with owners and set-user-id files; otherwise it runs as the worker.
    quiet_seconds: how long it may show no progress: no new status and, if `computes`, no CPU time used. computes: for
    jobs with long silent steps, such as a compiler's; a download instead reports the bytes that have arrived.
    expendable: the kernel ends it before anything else where the host runs out of memory.
    largest_file: maximum bytes of a file that it may write; the kernel ends a job that exceeds it.
    hints: what to do where it ends with one of these statuses; in any other case its log is named.
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
    pause_seconds: float = PAUSE_SECONDS
    shown: tuple[str, dict[str, str]] | None = None
    readable: Mapping[str, str] = field(default_factory=dict)
    quiet_seconds: float = QUIET_SECONDS
    computes: bool = True
    expendable: bool = False
    largest_file: int = LARGEST_FILE
    hints: Mapping[int, str] = field(default_factory=dict)


@dataclass
class _LastSign:
    """A job's last progress: when it was seen, its status, and the CPU time used by then in nanoseconds."""

    seen: float
    status: str
    cpu_ns: int


_cancelled = False


def cancel() -> None:
    """Stops every running job and prevents waiting ones from starting."""
    global _cancelled
    _cancelled = True


def cancelled() -> bool:
    """Whether the user asked to stop."""
    return _cancelled


def check_cancelled(message: str) -> None:
    """Raises Cancelled with this message if the user asked to stop."""
    if cancelled():
        raise Cancelled(message)


def run(host: Host, job: Job) -> None:
    """Starts the job or continues the running one, and returns when it has succeeded.

    Raises HostFailed with the job's last line, or Cancelled. The caller checks the job's result. A greenlet that calls
    this stops the job if Cancelled is raised in it, and lets it run if it is killed otherwise.
    """
    running = going(host, job)
    try:
        if not running:
            _start(host, job)
        _follow(host, job)
    except BaseException as error:
        if _cancelled or isinstance(error, Cancelled):
            _stop(host, job)
        raise


def going(host: Host, job: Job) -> bool:
    """Whether the job of an earlier run is running; waits for one that is being stopped, as it may still write.

    Call this before preparing a job's files. Raises HostFailed, Cancelled, or one of CONNECTION_ERRORS.
    """
    state, deadline = "", time.monotonic() + STOP_SECONDS
    while not _cancelled:
        state = _state(host, job)["ActiveState"]
        if state != "deactivating":
            break
        if time.monotonic() > deadline:
            raise HostFailed(
                f"{host.name}: {job.step}: {job.unit} did not stop within {STOP_SECONDS:.0f} s",
                f"run the same command again; on the host: systemctl status {job.unit}",
            )
        _wait(host, job)
    check_cancelled(f"{host.name}: {job.step}: cancelled before it started")
    return state in ("active", "activating")


def at_work(host: Host, job: Job) -> bool:
    """Whether the job is running or stopping. Raises one of CONNECTION_ERRORS."""
    return _state(host, job)["ActiveState"] in GOING


def _wait(host: Host, job: Job) -> None:
    report(Progress(host.name, job.step, text="waiting for it to stop"))
    gevent.sleep(POLL_SECONDS)


def _paused(job: Job) -> tuple[str, ...]:
    """Properties that stop units before the job and start them after it, as root ("+"), without waiting for them.

    The start count is reset, because systemd refuses a start after several recent ones.
    """
    stop = (f"ExecStartPre=+systemctl stop {' '.join(job.paused)}",)
    words = ("-+systemctl reset-failed", "+systemctl start --no-block")
    start = (f"ExecStopPost={word} {unit}" for unit in job.paused for word in words)
    return (*stop, *start, f"TimeoutStartSec={job.pause_seconds:.0f}") if job.paused else ()


def _start(host: Host, job: Job) -> None:
    properties = (
        "NotifyAccess=all",
        *(() if job.private_network else (proxy.PROPERTY,)),
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
        *(("OOMScoreAdjust=1000",) if job.expendable else ()),
        f"LimitFSIZE={job.largest_file}",
        f"PrivateNetwork={'yes' if job.private_network else 'no'}",
        f"ReadWritePaths={' '.join(job.writable)}",
        *_shown(job),
        *(f"BindReadOnlyPaths={real}:{path}" for path, real in job.readable.items()),
    )
    # a unit that failed in an earlier run keeps its name until it is reset
    remote.run(host, "sh", "-c", f'{proxy.COPY}systemctl reset-failed "$1"', "rigup", job.unit)
    remote.check_output(
        host,
        "systemd-run",
        "--quiet",
        "--service-type=exec",
        f"--unit={job.unit}",
        f"--description=rigup: {job.step}",
        *(() if job.as_root else (f"--uid={WORKER_USER}", f"--gid={WORKER_USER}")),
        *(f"--property={value}" for value in properties),
        *job.command,
        timeout=job.pause_seconds + 60 if job.paused else 60,
    )


def _shown(job: Job) -> tuple[str, ...]:
    if job.shown is None:
        return ()
    folder, paths = job.shown
    return (f"TemporaryFileSystem={folder}:ro", *(f"BindPaths={real}:{path}" for path, real in paths.items()))


def _follow(host: Host, job: Job) -> None:
    lost_since: float | None = None
    progress: _LastSign | None = None
    while not _cancelled:
        try:
            state = _state(host, job)
        except remote.CONNECTION_ERRORS:
            lost_since = lost_since or time.monotonic()
            if time.monotonic() - lost_since > RECONNECT_SECONDS:
                raise HostFailed(
                    f"{host.name}: {job.step}: connection lost for {RECONNECT_SECONDS:.0f} s",
                    "run rigup apply again when the host is reachable; the step continues there meanwhile",
                ) from None
            report(Progress(host.name, job.step, text="connection lost, reconnecting"))
            gevent.sleep(POLL_SECONDS)
            remote.reconnect(host)
            continue
        if lost_since is not None:  # nothing was observed meanwhile
            lost_since, progress = None, None
        if state["ActiveState"] == "failed":
            hints = {str(status): hint for status, hint in job.hints.items()}
            hint = hints.get(state.get("ExecMainStatus", ""), f"on the host: journalctl -u {job.unit}")
            raise HostFailed(f"{host.name}: {job.step}: {_last_words(host, job)}", hint)
        if state["ActiveState"] not in GOING:
            return
        progress = _progress(job, state, progress)
        if time.monotonic() - progress.seen > job.quiet_seconds:
            _stop(host, job)
            raise HostFailed(
                f"{host.name}: {job.step}: {job.unit} showed no progress for {seconds_text(job.quiet_seconds)} and was "
                f"stopped; its last status: {progress.status or 'none'}",
                f"run the same command again; on the host: journalctl -u {job.unit}",
            )
        _report(host, job, state["StatusText"])
        gevent.sleep(POLL_SECONDS)
    raise Cancelled(f"{host.name}: {job.step}: cancelled")


def _progress(job: Job, state: dict[str, str], last: _LastSign | None) -> _LastSign:
    """Updates the job's last progress from this state."""
    used = state.get("CPUUsageNSec", "")
    now = _LastSign(time.monotonic(), state["StatusText"], int(used) if re.fullmatch(_COUNT, used) else 0)
    if last is None or now.status != last.status or (job.computes and now.cpu_ns - last.cpu_ns >= WORKED_NS):
        return now
    return last


def _state(host: Host, job: Job) -> dict[str, str]:
    output = remote.run(host, "systemctl", "show", job.unit, f"--property={SHOWN}", timeout=15)
    found = dict(line.split("=", 1) for line in output.stdout.splitlines() if "=" in line)
    if "ActiveState" not in found:
        raise OSError(f"systemctl show {job.unit}: {output.last_line}")
    return {"StatusText": ""} | found


def _report(host: Host, job: Job, status: str) -> None:
    done, total, text = 0, 0, status
    if counted := re.match(_COUNTED, status):
        done, total = int(counted[1]), int(counted[2])
        text = counted[3].removeprefix(job.unit_of_progress).lstrip(", ")
    report(Progress(host.name, job.step, done, total, job.unit_of_progress, text))


def _last_words(host: Host, job: Job) -> str:
    lines = remote.log_lines(host, job.unit, 40)
    own = [line for line in lines if not line.startswith((job.unit, "Started ", "Starting "))]
    return own[-1] if own else "exited without output"


def _ended(host: Host, job: Job) -> bool:
    """Whether the job ends within STOP_SECONDS. Raises one of CONNECTION_ERRORS."""
    deadline = time.monotonic() + STOP_SECONDS
    while at_work(host, job):
        if time.monotonic() > deadline:
            return False
        _wait(host, job)
    return True


def _stop(host: Host, job: Job) -> None:
    try:
        remote.run(host, "systemctl", "stop", "--no-block", job.unit, timeout=30)
        if not _ended(host, job):
            report(Progress(host.name, job.step, text=f"{job.unit} has not stopped yet"))
    except remote.CONNECTION_ERRORS:
        report(Progress(host.name, job.step, text="could not stop: connection lost"))
