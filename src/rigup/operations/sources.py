"""Source archives of engines on the controlling machine: fetched once, checked by the lock, kept under their hash."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from rigup.errors import HostFailed, InputError, Unreachable
from rigup.lock import LockedSource
from rigup.operations.package_index import find_sdist

Progress = Callable[[int, int], None]

CONNECT_TIMEOUT_S = 20
READ_TIMEOUT_S = 60
PAUSES_S = (0.2, 1.0, 3.0, 0.0)
LOCK_POLL_S = 0.1
BLOCK = 2**20


def fetch_source(source: LockedSource, cache: Path, progress: Progress) -> Path:
    """The archive of a locked source, as a file in `cache`; downloads it, or the rest of it, where it is not there yet.

    progress: called with bytes done and bytes in all (0 while unknown). Nothing in the archive is unpacked or run.
    Raises Unreachable where it cannot be had, and HostFailed where it is not what the lock pins; that is not kept.
    """
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / source.sha256
    with _locked(cache / f"{source.sha256}.lock"):
        if archive.exists():
            return archive
        part = cache / f"{source.sha256}.part"
        url = _url(source.engine, source.version, source.address)
        _download(url, f"{source.engine} {source.version}: {source.address}", part, progress)
        found = _sha256(part)
        if found != source.sha256:
            part.unlink()
            message = (
                f"{source.engine} {source.version}: {source.address}: sha256 is {found}, the lock says {source.sha256}"
            )
            raise HostFailed(message, "the archive was replaced or the lock is wrong; nothing was kept")
        part.replace(archive)
    return archive


def pin_source(
    engine: str, version: str, address: str, root: str, cache: Path, progress: Progress = lambda done, total: None
) -> LockedSource:
    """What the lock says of a source archive that it does not have yet: downloads it into `cache` and hashes it.

    address, root: as `lock.LockedSource` has them. The archive stays in the cache, where `fetch_source` finds it.
    Raises InputError where nothing lies at the address or the archive is without `root`, Unreachable where it cannot be
    asked for.
    """
    what = f"{engine} {version}: {address}"
    url = _url(engine, version, address)
    cache.mkdir(parents=True, exist_ok=True)
    # What is continued must be of one file: the address may hold another one next time.
    part = cache / f"{hashlib.sha256(url.encode()).hexdigest()}.new"
    with _locked(part.with_suffix(".lock")):
        part.unlink(missing_ok=True)
        try:
            _download(url, what, part, progress)
            _require_root(what, part, root)
            sha256 = _sha256(part)
            part.replace(cache / sha256)
        finally:
            part.unlink(missing_ok=True)
    return LockedSource(engine=engine, version=version, address=address, sha256=sha256, root=root)


def _require_root(what: str, archive: Path, root: str) -> None:
    """Raises InputError unless a tar archive holds something below a folder."""
    try:
        with tarfile.open(archive) as opened:
            if any(f"{member.name}/".startswith(f"{root.rstrip('/')}/") for member in opened):
                return
    except (tarfile.TarError, EOFError, zlib.error):
        raise InputError(f"{what}: what lies there is no tar archive", "is the address right?") from None
    raise InputError(f"{what}: the archive has no folder {root}", "archive_root in the engine's file names it")


def _url(engine: str, version: str, address: str) -> str:
    """The URL behind the lock's address."""
    scheme, _, rest = address.partition(":")
    if scheme == "https":
        return address
    if scheme == "pypi" and rest.count("==") == 1:
        project, version = rest.split("==")
        return find_sdist(project, version)
    where = f"rigup.lock: sources: {engine} {version}: address"
    raise InputError(f'{where}: "{address}" is neither an https URL nor pypi:PROJECT==VERSION')


def _download(url: str, what: str, part: Path, progress: Progress) -> None:
    """Makes `part` whole, continuing what is there, over several connections if it must be."""
    problem: Exception | None = None
    for pause in PAUSES_S:
        try:
            _continue(url, part, progress)
            return
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            problem = error
            time.sleep(pause)
        except requests.RequestException as error:
            problem = error
            break
    answered = isinstance(problem, requests.HTTPError)
    hint = "is the address still right?" if answered else "is this machine online?"
    raise Unreachable(f"{what}: {_reason(problem)}", hint) from None


def _continue(url: str, part: Path, progress: Progress) -> None:
    """One request for what is missing. Raises requests' errors, also for a body that ends too early."""
    have = part.stat().st_size if part.exists() else 0
    wanted = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=wanted, stream=True, timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S)) as answer:
        if answer.status_code == 416:
            return  # nothing is missing, or what is there is wrong: the hash will tell
        answer.raise_for_status()
        if answer.status_code != 206:
            have = 0
        total = have + int(answer.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as file:
            for block in answer.iter_content(BLOCK):
                file.write(block)
                have += len(block)
                progress(have, max(total, have))
            file.flush()
            os.fsync(file.fileno())
        if have < total:
            raise requests.ConnectionError(f"the connection ended after {have} of {total} bytes")


def _reason(problem: Exception | None) -> str:
    """What went wrong, in a few words and without addresses, which may carry a password."""
    if isinstance(problem, requests.HTTPError):
        return f"HTTP {problem.response.status_code}"
    if isinstance(problem, requests.Timeout):
        return "no answer in time"
    if isinstance(problem, requests.exceptions.SSLError):
        return "the server's certificate cannot be verified"
    return "cannot be reached"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One download of an archive at a time; whoever waits finds it done."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # A blocking flock would stop every greenlet of this process, the one that holds the lock too.
                time.sleep(LOCK_POLL_S)
        yield
