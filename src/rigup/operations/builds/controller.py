"""Compiles a build on the controlling machine for similar hosts, as the user, in the cache folder.

If the machine differs from the hosts or lacks a tool, the hosts compile the build themselves.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent
from gevent.lock import RLock

from rigup.errors import HostFailed
from rigup.operations.apt.commands import upstream
from rigup.operations.builds.records import BuildRecord, keep_archive, read_record
from rigup.operations.primitives import jobs
from rigup.plan import Build
from rigup.programs import build_source
from rigup.settings import CONTROLLER, Builder

TOOLS = ("cmake", "ninja", "c++")
POLL_SECONDS = 0.5
_TAIL = 4000
_COUNTED = re.compile(r"^\[(\d+)/(\d+)\]", re.MULTILINE)
_COMPILING: dict[str, RLock] = {}

Counted = Callable[[int, int], None]


def own_os() -> str:
    """This machine's system in the probe's format: "debian-12"; "" if unknown."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{release.get('ID', '')}-{release.get('VERSION_ID', '')}"


def lacking(build: Build) -> str:
    """The tools or packages that this machine needs to compile a build but does not have; "" if none."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return ", ".join(missing)
    for package, version in build.pinned_packages.items():
        words = ("dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", package)
        try:
            installed = subprocess.run(words, capture_output=True, text=True).stdout.split()
        except OSError:
            installed = []
        if len(installed) != 2 or installed[0] != "installed" or upstream(installed[1]) != version:
            return f"{package} {version}"
    return ""


def compiled(builder: Builder, name: str, job: Callable[[str, str], dict[str, Any]], counted: Counted) -> BuildRecord:
    """The record of a build, which is compiled unless it exists by then.

    job: returns that of build_source.py, given where it works and where it leaves the build.
    Raises HostFailed with the compiler's last line, or Cancelled.
    """
    builder.folder.mkdir(parents=True, exist_ok=True)
    with _COMPILING.setdefault(name, RLock()):
        if record := read_record(builder, name):
            return record
        with tempfile.TemporaryDirectory(dir=builder.folder, prefix=".work-") as folder:
            work = Path(folder)
            result = work / name
            (work / "job.json").write_text(json.dumps(job(str(work / "tree"), str(result))))
            _run(work, counted)
            packed = work / "packed.tar.gz"
            with tarfile.open(packed, "w:gz") as tar:
                tar.add(result, name)
            return keep_archive(builder, name, packed)


def _run(work: Path, counted: Counted) -> None:
    """Runs build_source.py in its own session, and kills all of it at the end."""
    log = work / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, build_source.__file__, str(work / "job.json")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            jobs.check_cancelled(f"{CONTROLLER}: engine: cancelled")
            if steps := _COUNTED.findall(_tail(log)):
                counted(*map(int, steps[-1]))
            gevent.sleep(POLL_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        lines = _tail(log).strip().splitlines() or ["exited without output"]
        raise HostFailed(
            f"{CONTROLLER}: engine: {lines[-1]}", "remove builder from the inventory to compile on each host"
        )


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        return file.read().decode(errors="replace")
