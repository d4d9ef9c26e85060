"""Many downloads by one curl: each reported as it ends, each continued where an earlier one stopped.

Part of fetch_weights.py: the two lie side by side on a host. Python 3.10 standard library only; curl 7.75 or later.

The configuration, with the token, goes to curl through a pipe: it is in no argv, environment or file. curl itself keeps
an `Authorization` header from any other host that it is redirected to (since 7.58).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
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

SECTION = """\
url = "{url}"
output = "{part}"
max-filesize = {size}
write-out = "%{{stderr}}{number}\\t%{{exitcode}}\\t%{{http_code}}\\t%{{url_effective}}\\t%{{errormsg}}\\n"
proto = "{schemes}"
proto-redir = "{schemes}"
speed-time = {stall_s}
speed-limit = 1024
connect-timeout = 20
max-redirs = 5
continue-at = -
location
globoff
fail
http1.1
"""


@dataclass(frozen=True)
class Wanted:
    """One download: from where, to which file (continued if it is there), and its size in bytes."""

    url: str
    part: Path
    size: int


@dataclass(frozen=True)
class Transfer:
    """How download `number` ended: curl's exit code and message, the last HTTP status and the host that gave it."""

    number: int
    code: int
    status: int
    host: str
    message: str


def configuration(wanted: Sequence[Wanted], parallel: int, stall_s: int, token: str | None) -> str:
    """curl's configuration file. HTTP/1.1 gives each file its own connection instead of a share of one."""
    sections = []
    for number, each in enumerate(wanted):
        schemes = "=https" if each.url.startswith("https:") else "=https,http"
        part = str(each.part).replace("\\", "\\\\").replace('"', '\\"')
        values = {"number": number, "url": each.url, "part": part, "size": each.size}
        section = SECTION.format(**values, schemes=schemes, stall_s=stall_s)
        sections.append(section + (f'header = "Authorization: Bearer {token}"\n' if token else ""))
    head = f"silent\nno-progress-meter\nparallel\nparallel-immediate\nparallel-max = {max(1, min(16, parallel))}\n"
    return head + "next\n".join(sections)


def transfers(config: str, keep_open: int) -> Generator[Transfer | None]:
    """Runs curl on a configuration and yields each transfer as it ends, and None every half second at least.

    keep_open: a descriptor that curl inherits. curl is killed when the iterator is closed, and when this process dies.
    """
    command = ["curl", "--disable", "--config", "-"]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    pipe = subprocess.PIPE
    curl = subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, pass_fds=(keep_open,))
    assert curl.stdin is not None and curl.stderr is not None
    try:
        with contextlib.suppress(BrokenPipeError), curl.stdin:
            curl.stdin.write(config.encode())
        for line in _lines(curl.stderr):
            yield None if line is None else _transfer(line)
    finally:
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
    number, *fields = line.split("\t", 4)
    if len(fields) != 4 or not number.isdigit():
        return None  # a warning of curl's own
    return Transfer(int(number), int(fields[0]), int(fields[1]), urllib.parse.urlsplit(fields[2]).netloc, fields[3])
