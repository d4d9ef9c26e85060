"""Many downloads by one curl: each reported as it ends, each continued where an earlier one stopped.

Part of fetch_weights.py: the two lie side by side on a host. Python 3.10 standard library only; curl 7.75 or later.

The configuration, with the token, goes to curl through a pipe: it is in no argv, environment or file. curl itself keeps
an `Authorization` header from any other host that it is redirected to (since 7.58).
"""

from __future__ import annotations

import contextlib
import email.utils
import os
import selectors
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TICK_S = 0.5

# curl's exit codes. It cannot continue this part: no ranges, bad resume, larger than announced.
START_OVER = (33, 36, 63)
# No second try will mend these: the disk, TLS.
WRITE_FAILED = 23
TLS_FAILED = (51, 58, 60, 66, 77, 83, 90)

FIELDS = ("%{exitcode}", "%{http_code}", "%{url_effective}", "%header{retry-after}", "%{errormsg}")
SECTION = """\
url = "{url}"
output = "{part}"
max-filesize = {size}
write-out = "%{{stderr}}{number}{fields}\\n"
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
NEIGHBOUR = """\
speed-limit = 65536
connect-timeout = 5
noproxy = "*"
"""
LONGEST_RETRY_AFTER_S = 600.0


@dataclass(frozen=True)
class Wanted:
    """One download: from where, to which file (continued if it is there), its size in bytes; neighbour: not the hub."""

    url: str
    part: Path
    size: int
    neighbour: bool = False


@dataclass(frozen=True)
class Transfer:
    """How download `number` ended: curl's exit code and message, the last HTTP status and the host that gave it.

    retry_after_s: how long that host wants to be left alone; 0 where it does not say, or curl is older than 7.84.
    """

    number: int
    code: int
    status: int
    host: str
    message: str
    retry_after_s: float = 0.0


def configuration(
    wanted: Sequence[Wanted], parallel: int, stall_s: int, token: str | None, bytes_per_second: int = 0
) -> str:
    """curl's configuration file. HTTP/1.1 gives each file its own connection instead of a share of one.

    bytes_per_second: of all of them together, 0 for no limit. curl limits each alone, so they then come one by one.
    """
    sections = []
    for number, each in enumerate(wanted):
        schemes = "=https" if each.url.startswith("https:") else "=https,http"
        part = str(each.part).replace("\\", "\\\\").replace('"', '\\"')
        values = {"number": number, "url": each.url, "part": part, "size": each.size}
        values["fields"] = "".join(f"\\t{field}" for field in FIELDS)
        section = (SECTION + (NEIGHBOUR if each.neighbour else HUB)).format(**values, schemes=schemes, stall_s=stall_s)
        section += f"limit-rate = {bytes_per_second}\n" if bytes_per_second else ""
        sections.append(section + (f'header = "Authorization: Bearer {token}"\n' if token else ""))
    most = 1 if bytes_per_second else max(1, min(16, parallel))
    head = f"silent\nno-progress-meter\nparallel\nparallel-immediate\nparallel-max = {most}\n"
    return head + "next\n".join(sections)


def transfers(config: str, keep_open: int) -> Generator[Transfer | None]:
    """Runs curl on a configuration and yields each transfer as it ends, and None every half second at least.

    keep_open: a descriptor that curl inherits. curl is killed when the iterator is closed, and when this process dies.
    """
    curl = _start(config, keep_open)
    assert curl.stderr is not None
    try:
        for line in _lines(curl.stderr):
            yield None if line is None else _transfer(line)
    finally:
        _end(curl)


class SideBySide:
    """Downloads that begin and end one by one, each by a curl of its own; all are killed by `close`.

    keep_open: a descriptor that every curl inherits.
    """

    def __init__(self, keep_open: int) -> None:
        self.keep_open = keep_open
        self._curls: dict[str, subprocess.Popen[bytes]] = {}
        self._said: dict[str, bytes] = {}
        self._selector = selectors.DefaultSelector()

    def begin(self, key: str, config: str) -> None:
        """Starts the one download of a configuration, known as `key` from now on."""
        curl = self._curls[key] = _start(config, self.keep_open)
        self._said[key] = b""
        assert curl.stderr is not None
        self._selector.register(curl.stderr, selectors.EVENT_READ, key)

    def ended(self, timeout_s: float) -> list[tuple[str, Transfer]]:
        """Those that have ended since, waiting for the first of them for `timeout_s` at most."""
        found = []
        for ready, _ in self._selector.select(timeout_s):
            data = os.read(ready.fd, 2**16)
            self._said[ready.data] += data
            if not data:
                found.append((ready.data, self.end(ready.data)))
        return found

    def end(self, key: str) -> Transfer:
        """Kills a download, unless it has ended, and says how it ended."""
        curl = self._curls.pop(key)
        assert curl.stderr is not None
        self._selector.unregister(curl.stderr)
        _end(curl)
        said = filter(None, map(_transfer, self._said.pop(key).decode(errors="replace").splitlines()))
        return next(said, Transfer(0, curl.returncode, 0, "", "stopped"))

    def close(self) -> None:
        """Kills what still runs."""
        for key in list(self._curls):
            self.end(key)
        self._selector.close()


def _start(config: str, keep_open: int) -> subprocess.Popen[bytes]:
    command = ["curl", "--disable", "--config", "-"]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    pipe = subprocess.PIPE
    curl = subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, pass_fds=(keep_open,))
    assert curl.stdin is not None
    with contextlib.suppress(BrokenPipeError), curl.stdin:
        curl.stdin.write(config.encode())
    return curl


def _end(curl: subprocess.Popen[bytes]) -> None:
    assert curl.stderr is not None
    curl.kill()
    curl.wait()
    curl.stderr.close()


def _lines(stream: IO[bytes]) -> Iterator[str | None]:
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if selector.select(timeout=TICK_S):
                data = os.read(stream.fileno(), 2**16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            yield None


def _transfer(line: str) -> Transfer | None:
    number, *fields = line.split("\t", 5)
    if len(fields) != 5 or not number.isdigit():
        return None  # a warning of curl's own
    host = urllib.parse.urlsplit(fields[2]).netloc
    return Transfer(int(number), int(fields[0]), int(fields[1]), host, fields[4], _seconds(fields[3]))


def _seconds(retry_after: str) -> float:
    """A Retry-After header in seconds from now: it is a number or a date; 0 where it is neither."""
    if retry_after.strip().isdigit():
        return min(float(retry_after), LONGEST_RETRY_AFTER_S)
    try:
        until = email.utils.parsedate_to_datetime(retry_after).timestamp()
    except (TypeError, ValueError):
        return 0.0
    return min(max(0.0, until - time.time()), LONGEST_RETRY_AFTER_S)
