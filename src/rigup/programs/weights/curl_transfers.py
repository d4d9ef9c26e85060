"""Downloads side by side, each by a curl of its own: reported as it ends, continued where an earlier one stopped.

Part of fetch_weights.py: the two lie side by side on a host. Python 3.10 standard library only; curl 7.75 or later.

The kernel ends a curl that writes more than its file may hold (RLIMIT_FSIZE), whoever sends it: curl's own
`max-filesize` counts only what a server announces.

The configuration, with the token, goes to curl through a pipe: it is in no argv, environment or file. curl itself keeps
an `Authorization` header from any other host that it is redirected to (since 7.58).
"""

from __future__ import annotations

import contextlib
import email.utils
import os
import resource
import selectors
import shutil
import signal
import subprocess
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

TICK_S = 0.5

# curl's exit codes. It cannot continue this part: no ranges, bad resume, larger than announced.
START_OVER = (33, 36, 63)
# The kernel has ended it: more came than the file may hold.
TOO_LARGE = -signal.SIGXFSZ
# No second try will mend these: the disk, TLS.
WRITE_FAILED = 23
TLS_FAILED = (51, 58, 60, 66, 77, 83, 90)

FIELDS = ("%{exitcode}", "%{http_code}", "%{url_effective}", "%header{retry-after}", "%{errormsg}")
SECTION = """\
url = "{url}"
output = "{part}"
max-filesize = {size}
write-out = "%{{stderr}}{fields}\\n"
proto = "{schemes}"
speed-time = {stall_s}
continue-at = -
globoff
fail
http1.1
"""
HUB = """\
speed-limit = 1024
proto-redir = "{schemes}"
connect-timeout = 20
max-redirs = 5
location
"""
# No redirect is followed, which could lead anywhere, and no proxy is asked for the machine next door.
PEER = """\
speed-limit = 65536
connect-timeout = 5
noproxy = "*"
"""
LONGEST_RETRY_AFTER_S = 600.0
MOST_SAID = 2**16


@dataclass(frozen=True)
class DownloadRequest:
    """One download: from where, to which file (continued if it is there), its size in bytes; peer: not the hub."""

    url: str
    part: Path
    size: int
    peer: bool = False


@dataclass(frozen=True)
class Transfer:
    """How a download ended: curl's exit code and message, the last HTTP status and the host that gave it.

    retry_after_s: how long that host wants to be left alone; 0 where it does not say, or curl is older than 7.84.
    """

    code: int
    status: int
    host: str
    message: str
    retry_after_s: float = 0.0


def configuration(wanted: DownloadRequest, stall_s: int, token: str | None, bytes_per_second: int = 0) -> str:
    """curl's configuration file; bytes_per_second: 0 for no limit."""
    part = str(wanted.part).replace("\\", "\\\\").replace('"', '\\"')
    values = {"url": wanted.url, "part": part, "size": wanted.size, "stall_s": stall_s}
    values["fields"] = "\\t".join(FIELDS)
    values["schemes"] = "=https" if wanted.url.startswith("https:") else "=https,http"
    config = "silent\nno-progress-meter\n" + (SECTION + (PEER if wanted.peer else HUB)).format(**values)
    config += f"limit-rate = {bytes_per_second}\n" if bytes_per_second else ""
    return config + (f'header = "Authorization: Bearer {token}"\n' if token else "")


class Transfers:
    """Downloads that begin and end one by one, each by a curl of its own; all are killed by `close`.

    keep_open: a descriptor that every curl inherits. Each is killed when this process dies, too.
    """

    def __init__(self, keep_open: int) -> None:
        self.keep_open = keep_open
        self._curls: dict[str, subprocess.Popen[bytes]] = {}
        self._said: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()

    def begin(self, key: str, config: str, size: int) -> None:
        """Starts the download of a configuration, known as `key` from now on; its file never exceeds `size` bytes."""
        curl = self._curls[key] = _start(config, size, self.keep_open)
        self._said[key] = b""
        assert curl.stderr is not None
        self._selector.register(curl.stderr, selectors.EVENT_READ, key)

    @property
    def running(self) -> int:
        """How many have begun and not ended."""
        return len(self._curls)

    def ended(self, timeout_s: float) -> list[tuple[str, Transfer]]:
        """Those that have ended since, waiting for the first of them for `timeout_s` at most."""
        found = []
        for ready, _ in self._selector.select(timeout_s):
            data = os.read(ready.fd, 2**16)
            self._said[ready.data] = (self._said[ready.data] + data)[-MOST_SAID:]
            if not data:
                found.append((ready.data, self._close(ready.data, wait=True)))
        return found

    def end(self, key: str) -> Transfer:
        """Kills a download, unless it has ended, and says how it ended."""
        return self._close(key, wait=False)

    def close(self) -> None:
        """Kills what still runs."""
        for key in list(self._curls):
            self.end(key)
        self._selector.close()

    def _close(self, key: str, wait: bool) -> Transfer:
        curl = self._curls.pop(key)
        assert curl.stderr is not None
        self._selector.unregister(curl.stderr)
        if wait:  # it has closed its standard error, so it is about to exit: its exit status counts
            with contextlib.suppress(subprocess.TimeoutExpired):
                curl.wait(timeout=1)
        curl.kill()
        curl.wait()
        curl.stderr.close()
        said = filter(None, map(_transfer, self._said.pop(key).decode(errors="replace").splitlines()))
        stopped = "sends more than the file's size" if curl.returncode == TOO_LARGE else "stopped"
        return next(said, Transfer(curl.returncode, 0, "", stopped))


def _start(config: str, size: int, keep_open: int) -> subprocess.Popen[bytes]:
    command = ["curl", "--disable", "--config", "-"]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    pipe = subprocess.PIPE
    curl = subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, pass_fds=(keep_open,))
    assert curl.stdin is not None
    with contextlib.suppress(ProcessLookupError):  # before it knows what to fetch, so nothing is written without it
        resource.prlimit(curl.pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(curl.pid, resource.RLIMIT_FSIZE, (size, size))
    with contextlib.suppress(BrokenPipeError), curl.stdin:
        curl.stdin.write(config.encode())
    return curl


def _transfer(line: str) -> Transfer | None:
    code, *fields = line.split("\t", 4)
    if len(fields) != 4 or not code.isdigit():
        return None  # a warning of curl's own
    host = urllib.parse.urlsplit(fields[1]).netloc
    return Transfer(int(code), int(fields[0]), host, fields[3], _seconds(fields[2]))


def _seconds(retry_after: str) -> float:
    """A Retry-After header in seconds from now: it is a number or a date; 0 where it is neither."""
    if retry_after.strip().isdigit():
        return min(float(retry_after), LONGEST_RETRY_AFTER_S)
    try:
        until = email.utils.parsedate_to_datetime(retry_after).timestamp()
    except (TypeError, ValueError):
        return 0.0
    return min(max(0.0, until - time.time()), LONGEST_RETRY_AFTER_S)
