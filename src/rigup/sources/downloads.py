"""Downloads into the controlling machine's cache: interrupted downloads continue, and files are named by their hash."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import requests
from requests.auth import AuthBase

from rigup.errors import HostFailed, Unreachable
from rigup.regular_files import sha256_of
from rigup.sources.bounded_http import BoundedSession, BoundExceeded, time_limit
from rigup.units import bytes_text

Progress = Callable[[int, int], None]

CONNECT_TIMEOUT_S = 20
READ_TIMEOUT_S = 60
PAUSES_S = (0.2, 1.0, 3.0, 0.0)
LOCK_POLL_S = 0.1
BLOCK = 2**20
BLOCK_S = 120.0
LARGEST_DOWNLOAD = 2**34
LENGTH = re.compile(r"[0-9]{1,18}")


def silent(done: int, total: int) -> None:
    """A progress callback that reports nothing."""


def fetch(
    find_url: Callable[[], str],
    what: str,
    sha256: str,
    target: Path,
    progress: Progress = silent,
    auth: AuthBase | None = None,
    most_bytes: int = LARGEST_DOWNLOAD,
) -> Path:
    """A file with this sha256 as `target`; downloads what is not there yet.

    find_url: called only if something is missing. what: the name of the file in messages. auth: for the request.
    progress: called with the bytes so far and the total in bytes (0 while unknown). most_bytes: the size limit.
    rigup does not unpack or run the file. Raises Unreachable if the download fails, and HostFailed if the hash is not
    the pinned one; rigup then deletes the file.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_name(f"{target.name}.lock")):
        if target.exists():
            return target
        part = target.with_name(f"{target.name}.part")
        download(find_url(), what, part, progress, auth, most_bytes)
        found = sha256_of(part)
        if found != sha256:
            part.unlink()
            message = f"{what}: sha256 is {found}, but rigup.lock has {sha256}"
            raise HostFailed(message, "check whether the file was replaced or the lock is wrong; nothing was kept")
        part.replace(target)
    return target


def download(
    url: str,
    what: str,
    part: Path,
    progress: Progress = silent,
    auth: AuthBase | None = None,
    most_bytes: int = LARGEST_DOWNLOAD,
) -> None:
    """Downloads the rest of `part`, with retries that continue where the connection broke. Raises Unreachable.

    Keeps at most `most_bytes`, and waits at most `BLOCK_S` seconds for each `BLOCK` bytes.
    """
    problem: Exception | None = None
    for pause in PAUSES_S:
        try:
            _continue(url, part, progress, auth, most_bytes)
            return
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            problem = error
            time.sleep(pause)
        except requests.RequestException as error:
            problem = error
            break
    answered = isinstance(problem, requests.HTTPError)
    hint = "check that the URL is still valid" if answered else "check that this machine is online"
    raise Unreachable(f"{what}: {reason(problem)}", hint) from None


def _continue(url: str, part: Path, progress: Progress, auth: AuthBase | None, most_bytes: int) -> None:
    """Requests the missing bytes once. Raises the errors of requests, also if the body ends too early."""
    have = part.stat().st_size if part.exists() else 0
    wanted = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    timeouts = (CONNECT_TIMEOUT_S, READ_TIMEOUT_S)
    with BoundedSession(most_bytes) as session, ExitStack() as opened:
        with time_limit(BLOCK_S):
            answer = opened.enter_context(session.get(url, headers=wanted, stream=True, timeout=timeouts, auth=auth))
        if answer.status_code == 416:
            return  # the file is complete or wrong, and its hash will show which
        answer.raise_for_status()
        if answer.status_code != 206:
            have = 0
        length = answer.headers.get("Content-Length", "")
        total = have + (int(length) if LENGTH.fullmatch(length) else 0)
        blocks = answer.iter_content(BLOCK)
        with part.open("ab" if have else "wb") as file:
            while block := _next(blocks):
                have += len(block)
                if have > most_bytes:
                    raise BoundExceeded(f"sent more than {bytes_text(most_bytes)}")
                file.write(block)
                progress(have, max(total, have))
            file.flush()
            os.fsync(file.fileno())
        if have < total:
            raise requests.ConnectionError(f"the connection ended after {have} of {total} bytes")


def _next(blocks: Iterator[bytes]) -> bytes:
    with time_limit(BLOCK_S):
        return next(blocks, b"")


def reason(problem: Exception | None) -> str:
    """What went wrong, in a few words and without URLs, which may contain a password."""
    if isinstance(problem, BoundExceeded):
        return f"the server {problem}"
    if isinstance(problem, requests.HTTPError):
        return f"HTTP {problem.response.status_code}"
    if isinstance(problem, requests.Timeout):
        return "no response in time"
    if isinstance(problem, requests.exceptions.SSLError):
        return "the server's certificate cannot be verified"
    return "cannot be reached"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lets only one run at a time download a file; a run that had to wait finds the file complete."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # A blocking flock would also stop the greenlet of this process that holds the lock.
                time.sleep(LOCK_POLL_S)
        yield
