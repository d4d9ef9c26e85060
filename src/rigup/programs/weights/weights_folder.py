"""The job (which files a folder of weights should hold), the receipt (which were verified), and the comparison.

Part of fetch_weights.py, which is in the same folder on a host.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn, Protocol

EXIT_COMPLETE = 0
EXIT_FAILED = 1
EXIT_INPUT = 2
EXIT_DISK = 3
EXIT_DENIED = 4
EXIT_HASH = 5
EXIT_GONE = 6

HASHERS = 4
RECEIPT = ".rigup-receipt.json"
BLOCK = 2**20


class FetchError(Exception):
    """Ends the program: one message for the last line of output, and the exit code."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def log(words: str) -> None:
    """Prints a line for the journal."""
    print(words, file=sys.stderr, flush=True)


def end_on_signals() -> None:
    """Turns the first signal into a FetchError, and ignores the rest while the program ends. Parts are kept."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def end(number: int, _frame: object) -> NoReturn:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise FetchError(128 + number, f"stopped by {signal.Signals(number).name}")

    for each in signals:
        signal.signal(each, end)


def exit_code(run: Callable[[], int | None], what: str) -> int:
    """Runs a program to its end; what it raises becomes one line of output. what: what an error is about, otherwise."""
    try:
        return run() or EXIT_COMPLETE
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {error.filename or what}: {error.strerror or error}", file=sys.stderr)
        return EXIT_FAILED


@dataclass(frozen=True)
class File:
    """One wanted file: path inside the repository, size in bytes, sha256 as hex."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class FetchJob:
    """What to download from where, as read from the job file. A check needs only `folder` and `files`.

    reserve_bytes: how much must stay free on the disk. attempts: tries without progress before giving up.
    stall_s: seconds without data before a transfer is cut. sharing: the host's part in a swarm, see peers.py.
    blobs: the address of files by their hash, of Ollama's registry, which then is `hub`.
    place: where the files of a checkpoint lie that the host had already; the folder then has the receipt alone.
    hub_bytes_per_second, lan_bytes_per_second: the limit of all transfers from there together, 0 for no limit.
    """

    folder: Path
    files: tuple[File, ...]
    hub: str = ""
    repo: str = ""
    revision: str = ""
    parallel: int = 4
    reserve_bytes: int = 0
    token_file: str | None = None
    attempts: int = 10
    stall_s: int = 30
    sharing: dict[str, Any] | None = None
    hub_bytes_per_second: int = 0
    lan_bytes_per_second: int = 0
    place: str | None = None
    blobs: str = ""

    @property
    def hub_transfers(self) -> int:
        """How many files come from the hub at a time: a limit applies to each transfer, so with a limit only one."""
        return 1 if self.hub_bytes_per_second else max(1, min(16, self.parallel))


class Download(Protocol):
    """One run of a job, as the code for shared downloads uses it: `Fetch` in fetch_weights.py, which says more."""

    job: FetchJob
    pending: dict[str, File]
    hashing: dict[concurrent.futures.Future[str], tuple[File, Path]]
    problem: str
    doing: str

    def part(self, file: File) -> Path: ...
    def part_bytes(self, file: File) -> int: ...
    def hub_transfer(self, file: File, part: Path | None = None) -> str: ...
    def verify(self, file: File, path: Path) -> None: ...
    def judge(self, file: File, transfer: Any) -> None: ...
    def take_hashes(self, wait: bool) -> None: ...
    def pause(self, tries: int) -> float: ...
    def require_disk(self) -> None: ...
    def report(self, final: bool = False) -> None: ...


def load_job(path: Path) -> FetchJob:
    """Reads a job file ("-": standard input). Raises FetchError if it is invalid or a path would leave the folder."""
    try:
        data: dict[str, Any] = json.loads(sys.stdin.read() if str(path) == "-" else path.read_text())
        files = tuple(File(str(f["path"]), int(f["size"]), str(f["sha256"])) for f in data["files"])
        job = FetchJob(
            **{**data, "files": files, "folder": Path(data["folder"]), "hub": data.get("hub", "").rstrip("/")}
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(EXIT_INPUT, f"{path}: not a valid job: {error!r}") from None
    for file in files:
        parts = PurePosixPath(file.path).parts
        if not parts or parts[0] == "/" or ".." in parts or not file.path.isprintable():
            raise FetchError(EXIT_INPUT, f"{path}: files: {file.path!r} is not a path inside the repository")
    return job


def sync_folder(path: Path) -> None:
    """Makes renames in a folder survive a power cut."""
    sync(path, os.O_DIRECTORY)


def sync(path: Path, flags: int = 0) -> None:
    """Syncs a file's or folder's content to disk."""
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def size_of(path: Path) -> int | None:
    """The size of a regular file, or None."""
    return path.stat().st_size if path.is_file() else None


def hash_file(
    path: Path, stop: threading.Event | None = None, count_hashed: Callable[[int], None] | None = None
) -> str:
    """The sha256 of a file, as hex. Raises InterruptedError soon after `stop` is set.

    count_hashed: called with the number of bytes of each block.
    """
    digest, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            if count_hashed is not None:
                count_hashed(count)
            if stop is not None and stop.is_set():
                raise InterruptedError(f"{path}: stopped")
    return digest.hexdigest()


def hashers() -> concurrent.futures.ThreadPoolExecutor:
    """Threads that hash files side by side."""
    return concurrent.futures.ThreadPoolExecutor(min(HASHERS, os.cpu_count() or 1))


class Receipt:
    """The verified files of a folder: size, sha256, mtime and inode of each, so that none is hashed again."""

    def __init__(self, folder: Path, place: str | None = None) -> None:
        self.folder = folder
        self.files = Path(place) if place else folder
        self.entries: dict[str, dict[str, Any]] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # an invalid receipt is empty
            self.entries = {entry["path"]: entry for entry in json.loads((folder / RECEIPT).read_text())["files"]}

    def add(self, file: File) -> None:
        """Adds a file that was just verified under its final name."""
        self.entries[file.path] = self.entry(file)

    def covers(self, file: File) -> bool:
        """True when the file exists, is the one that the job wants, and has not changed since it was verified."""
        try:
            return self.entries.get(file.path) == self.entry(file) and size_of(self.files / file.path) == file.size
        except OSError:
            return False

    def write(self, job: FetchJob) -> None:
        """Replaces the receipt on disk atomically."""
        content = {"schema": 1, "repo": job.repo, "revision": job.revision}
        temporary = self.folder / (RECEIPT + ".new")
        with temporary.open("w") as file:
            json.dump({**content, "files": [self.entries[path] for path in sorted(self.entries)]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.folder / RECEIPT)
        sync_folder(self.folder)

    def entry(self, file: File) -> dict[str, Any]:
        """What the receipt says of a file that is as wanted, by its state now."""
        status = (self.files / file.path).stat()
        entry = {"path": file.path, "size": status.st_size, "sha256": file.sha256}
        return {**entry, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}


def check(job: FetchJob, deep: bool) -> dict[str, Any]:
    """Whether the folder holds the job's files, by the receipt; with `deep`, every file is hashed as well, in parallel.

    deep: a file that was touched but is still right counts as right.
    """
    receipt = Receipt(job.folder, job.place)
    there = [file for file in job.files if (receipt.files / file.path).is_file()]
    missing = [file.path for file in job.files if file not in there]
    if deep:
        with hashers() as pool:
            sized = [file for file in there if size_of(receipt.files / file.path) == file.size]
            hashes = pool.map(hash_file, (receipt.files / file.path for file in sized))
            right = {file.path for file, found in zip(sized, hashes, strict=True) if found == file.sha256}
            bad = [file.path for file in there if file.path not in right]
    else:
        bad = [file.path for file in there if not receipt.covers(file)]
    return {"complete": not missing and not bad, "missing": missing, "bad": bad}
