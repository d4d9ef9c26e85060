"""Parallel downloads, one curl process each; a download continues where an earlier one stopped.

Part of fetch_weights.py, which is in the same folder on a host. Needs curl 7.75 or later.

The kernel ends a curl that writes more than its file may hold (RLIMIT_FSIZE): curl's own `max-filesize` checks only the
size that a server announces.

curl reads the configuration, with the token, from a pipe: the token is in no argv, environment or file. curl itself
sends an `Authorization` header to no other host after a redirect (since 7.58).
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

# curl's exit codes. These mean that curl cannot continue this part: no ranges, bad resume, larger than announced.
START_OVER = (33, 36, 63)
# The kernel ended curl because it wrote more than the file may hold.
TOO_LARGE = -signal.SIGXFSZ
# A retry does not help: full disk, TLS errors.
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
{which}
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
# curl follows no redirect, which could lead anywhere, and uses no proxy for a host on the same network.
PEER = """\
speed-limit = 65536
connect-timeout = 5
noproxy = "*"
"""
LONGEST_RETRY_AFTER_S = 600.0
MOST_ERROR_BYTES = 2**16


@dataclass(frozen=True)
class Transfer:
    """How a download ended: curl's exit code and message, the last HTTP status and the host that sent it.

    retry_after_s: how long that host asked to wait; 0 if it did not, or if curl is older than 7.84.
    """

    code: int
    status: int
    host: str
    message: str
    retry_after_s: float = 0.0


def configuration(
    url: str,
    part: Path,
    size: int,
    stall_s: int,
    token: str | None,
    bytes_per_second: int = 0,
    peer: bool = False,
    most: int = 0,
) -> str:
    """curl's configuration file for one download.

    part: the target file, which curl continues if it exists. size: its bytes when complete. bytes_per_second: 0 for no
    limit. peer: whether a peer is the source. most: only that many bytes from the beginning on, 0 for all.
    """
    target = str(part).replace("\\", "\\\\").replace('"', '\\"')
    values = {"url": url, "part": target, "size": size, "stall_s": stall_s}
    values["which"] = f"range = 0-{most - 1}" if most else "continue-at = -"
    values["fields"] = "\\t".join(FIELDS)
    values["schemes"] = "=https" if url.startswith("https:") else "=https,http"
    config = "silent\nno-progress-meter\n" + (SECTION + (PEER if peer else HUB)).format(**values)
    config += f"limit-rate = {bytes_per_second}\n" if bytes_per_second else ""
    return config + (f'header = "Authorization: Bearer {token}"\n' if token else "")


class Transfers:
    """Downloads that start and end independently, one curl process each; `close` kills all of them.

    keep_open: a descriptor that every curl inherits. The kernel kills each curl when this process dies.
    """

    def __init__(self, keep_open: int) -> None:
        self.keep_open = keep_open
        self._curls: dict[str, subprocess.Popen[bytes]] = {}
        self._stderr: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()

    def begin(self, key: str, config: str, size: int) -> None:
        """Starts the download of a configuration under the name `key`; its file never exceeds `size` bytes."""
        curl = self._curls[key] = _start(config, size, self.keep_open)
        self._stderr[key] = b""
        assert curl.stderr is not None
        self._selector.register(curl.stderr, selectors.EVENT_READ, key)

    @property
    def running(self) -> int:
        """The number of downloads that run."""
        return len(self._curls)

    def ended(self, timeout_s: float) -> list[tuple[str, Transfer]]:
        """The downloads that have ended since the last call; waits up to `timeout_s` for the first."""
        found = []
        for ready, _ in self._selector.select(timeout_s):
            data = os.read(ready.fd, 2**16)
            self._stderr[ready.data] = (self._stderr[ready.data] + data)[-MOST_ERROR_BYTES:]
            if not data:
                found.append((ready.data, self._close(ready.data, wait=True)))
        return found

    def end(self, key: str) -> Transfer:
        """Kills a download unless it has ended, and returns its result."""
        return self._close(key, wait=False)

    def close(self) -> None:
        """Kills every download that still runs."""
        for key in list(self._curls):
            self.end(key)
        self._selector.close()

    def _close(self, key: str, wait: bool) -> Transfer:
        curl = self._curls.pop(key)
        assert curl.stderr is not None
        self._selector.unregister(curl.stderr)
        if wait:  # curl closed standard error, so it is about to exit: use its exit status
            with contextlib.suppress(subprocess.TimeoutExpired):
                curl.wait(timeout=1)
        curl.kill()
        curl.wait()
        curl.stderr.close()
        results = filter(None, map(_transfer, self._stderr.pop(key).decode(errors="replace").splitlines()))
        stopped = "sends more than the file's size" if curl.returncode == TOO_LARGE else "stopped"
        return next(results, Transfer(curl.returncode, 0, "", stopped))


def _start(config: str, size: int, keep_open: int) -> subprocess.Popen[bytes]:
    command = ["curl", "--disable", "--config", "-"]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    pipe = subprocess.PIPE
    curl = subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, pass_fds=(keep_open,))
    assert curl.stdin is not None
    with contextlib.suppress(ProcessLookupError):  # before curl has its configuration, so no write is unlimited
        resource.prlimit(curl.pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(curl.pid, resource.RLIMIT_FSIZE, (size, size))
    with contextlib.suppress(BrokenPipeError), curl.stdin:
        curl.stdin.write(config.encode())
    return curl


def _transfer(line: str) -> Transfer | None:
    code, *fields = line.split("\t", 4)
    if len(fields) != 4 or not code.isdigit():
        return None  # one of curl's warnings
    host = urllib.parse.urlsplit(fields[1]).netloc
    return Transfer(int(code), int(fields[0]), host, fields[3], _seconds(fields[2]))


def _seconds(retry_after: str) -> float:
    """A Retry-After header (a number or a date) in seconds from now; 0 if it is neither."""
    if retry_after.strip().isdigit():
        return min(float(retry_after), LONGEST_RETRY_AFTER_S)
    try:
        until = email.utils.parsedate_to_datetime(retry_after).timestamp()
    except (TypeError, ValueError):
        return 0.0
    return min(max(0.0, until - time.time()), LONGEST_RETRY_AFTER_S)
