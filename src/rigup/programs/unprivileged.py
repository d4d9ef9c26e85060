"""Parses untrusted data in a separate process without root privileges, with limits on time and memory."""

from __future__ import annotations

import os
import pwd
import resource
import select
import signal
import time
from collections.abc import Callable

USERS = ("rigup", "nobody")
NOBODY = 65534
MOST_MEMORY = 1 << 28
CHUNK = 1 << 16


def give_up_root(users: tuple[str, ...] = USERS) -> None:
    """Becomes the first of these users that exists. Does nothing if this process does not run as root."""
    if os.geteuid():
        return
    user = group = NOBODY
    for name in users:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        user, group = entry.pw_uid, entry.pw_gid
        break
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)  # from now on only root can read this process's memory


def output_of(work: Callable[[], bytes], seconds: float, most: int) -> bytes:
    """The result of `work` in an unprivileged process; b"" if it fails, takes too long or returns more than `most`."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _work(work, reading, writing, seconds)
    os.close(writing)
    try:
        return _read(reading, time.monotonic() + seconds, most)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _work(work: Callable[[], bytes], reading: int, writing: int, seconds: float) -> None:
    """Runs `work` in the child. Never returns."""
    try:
        os.close(reading)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + 1)  # in case the parent is gone
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm") as file:
            most = int(file.read().split()[0]) * resource.getpagesize() + MOST_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        give_up_root()
        left = memoryview(work())
        while left:
            left = left[os.write(writing, left) :]
    finally:
        os._exit(0)


def _read(pipe: int, deadline: float, most: int) -> bytes:
    found = b""
    while len(found) <= most:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([pipe], [], [], left)[0]:
            return b""
        data = os.read(pipe, CHUNK)
        if not data:
            return found
        found += data
    return b""
