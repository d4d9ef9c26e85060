"""Downloads the files of one checkpoint revision: the folder appears only when every file is complete and verified.

    fetch_weights.py JOB                   download what is missing; resumes what an earlier run left behind
    fetch_weights.py --check [--deep] JOB  print {"complete", "missing", "bad"}; --deep hashes every file

JOB is a JSON file, or "-" for standard input: see `FetchJob` in weights_folder.py. The program needs
weights_folder.py, curl_transfers.py, hub_access.py and unit_status.py in its folder. A job with `sharing`, which also
downloads from other hosts, needs swarm.py, swarm_turns.py, hub_pace.py and peers.py as well.

Work files are next to the folder: FOLDER.incoming/parts/PATH.part grows, FOLDER.incoming/verified/PATH is complete and
hashed, and one rename creates FOLDER. Files that join an existing FOLDER are renamed into it one by one after they are
verified, and the receipt is replaced last. FOLDER.lock lets one fetcher run at a time: the second waits. The exit
codes are the EXIT_ constants of weights_folder.py, and 128 + the number of the signal that stopped the program.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import json
import os
import random
import shutil
import sys
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if __package__:
    from rigup.programs.unit_status import notify_status
    from rigup.programs.weights import curl_transfers as curl
    from rigup.programs.weights import weights_folder as weights
    from rigup.programs.weights.hub_access import configuration, denial
    from rigup.programs.weights.weights_folder import FetchError, FetchJob, File, Receipt, size_of, sync_folder
else:  # a host has the programs in one folder, without rigup, and no bytecode
    sys.dont_write_bytecode = True
    import curl_transfers as curl  # type: ignore[import-not-found, no-redef]
    import weights_folder as weights  # type: ignore[import-not-found, no-redef]
    from hub_access import configuration, denial  # type: ignore[import-not-found, no-redef]
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]
    from weights_folder import FetchError, FetchJob, File, Receipt, size_of, sync_folder  # type: ignore[no-redef]

if TYPE_CHECKING:
    from rigup.programs.weights.swarm import PeerDownload

HASH_ATTEMPTS = 3
REPORT_EVERY_S = 2.0
LONGEST_PAUSE_S = 30.0
FLUSH_EVERY_S = 0.5
FLUSH_BYTES = 8 * 2**20


def bytes_text(count: float) -> str:
    """A size in decimal units: 98362432 -> '98.4 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} TB"


class Fetch:
    """One run of one job. `run` returns when the folder is complete, and raises FetchError otherwise.

    receipt, staged: the verified files in the folder and beside it. pending: incomplete files. hashing: complete ones.
    """

    def __init__(self, job: FetchJob) -> None:
        self.job = job
        self.incoming = Path(f"{job.folder}.incoming")
        self.verified = self.incoming / "verified"
        self.pending: dict[str, File] = {}
        self.hashing: dict[concurrent.futures.Future[str], tuple[File, Path]] = {}
        self.wrong_hashes: Counter[str] = Counter()
        self.stop = threading.Event()
        self.pool = weights.hashers()
        self.problem = ""
        self.retry_after_s = 0.0
        self.reported = (0.0, -1, "")
        self.swarm: PeerDownload | None = None
        self.hashed = 0
        self.doing = ""

    def run(self) -> None:
        """Downloads every missing file and moves it into the folder."""
        try:
            with self.locked() as lock:
                if self.job.sharing:
                    self.swarm = self.join_swarm(lock)
                self.survey()
                self.require_disk()
                threading.Thread(target=self.flush, daemon=True).start()
                if self.swarm:
                    self.swarm.download()
                else:
                    self.download(lock)
                self.put_in_place()
                self.report(final=True)
        finally:
            if self.swarm:
                self.swarm.close()
            self.stop.set()
            self.pool.shutdown(cancel_futures=True)

    def join_swarm(self, lock: int) -> PeerDownload:
        """The job's swarm; a host has its modules only if it is in one."""
        if __package__:
            from rigup.programs.weights.swarm import PeerDownload
        else:
            from swarm import PeerDownload  # type: ignore[import-not-found, no-redef]

        return PeerDownload(self, lock)

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Holds FOLDER.lock and yields its descriptor; curl inherits it, so an orphaned curl keeps others away too."""
        self.job.folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{self.job.folder}.lock", "a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                notify_status(f"waiting for {lock.read().strip()}")
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.truncate(0)
            lock.write(f"process {os.getpid()} since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}\n")
            lock.flush()
            yield lock.fileno()

    def part(self, file: File) -> Path:
        """The file into which a download is written."""
        return self.incoming / "parts" / f"{file.path}.part"

    def part_bytes(self, file: File) -> int:
        """The bytes of a file that are downloaded so far."""
        return size_of(self.part(file)) or 0

    def survey(self) -> None:
        """Sorts the job's files: verified by a receipt, complete but not verified (to be hashed), or pending."""
        self.receipt, self.staged = Receipt(self.job.folder), Receipt(self.verified)
        for path in list(self.staged.entries):
            if not (self.verified / path).is_file():  # it is in place or lost
                del self.staged.entries[path]
        for file in self.job.files:
            if self.receipt.covers(file) or self.staged.covers(file):
                self.offer(file, (self.job.folder if self.receipt.covers(file) else self.verified) / file.path)
                continue
            places = (self.job.folder / file.path, self.verified / file.path)
            whole = next((path for path in places if size_of(path) == file.size), None)
            if whole:
                self.verify(file, whole)
            else:
                self.pending[file.path] = file
        self.take_whole_parts()

    def offer(self, file: File, path: Path) -> None:
        """Offers a verified file to the peers, if the host is in a swarm."""
        if self.swarm:
            self.swarm.offer.add(file.sha256, path)

    def take_whole_parts(self) -> None:
        """Hashes parts that have reached their size, and deletes those that exceed it."""
        for file in list(self.pending.values()):
            self.take_whole_part(file)

    def take_whole_part(self, file: File) -> None:
        """Like `take_whole_parts`, for one pending file."""
        part = self.part(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        if file.size == 0:
            part.touch()
        size = size_of(part)
        if size == file.size:
            self.verify(file, part)
        elif size is not None and size > file.size:
            part.unlink()

    def flush(self) -> None:
        """Writes growing parts to disk as they arrive, to avoid one long sync at the end."""
        flushed: dict[Path, int] = {}
        while not self.stop.wait(FLUSH_EVERY_S):
            for part in [self.part(file) for file in list(self.pending.values())]:
                with contextlib.suppress(OSError):
                    size = size_of(part)
                    if size and size - flushed.get(part, 0) >= FLUSH_BYTES:
                        flushed[part] = size
                        weights.sync(part)

    def verify(self, file: File, path: Path) -> None:
        """Hashes a file of the right size in the background; `take_hashes` takes the result."""
        self.pending.pop(file.path, None)
        self.hashing[self.pool.submit(self.hash_on_disk, path)] = (file, path)

    def hash_on_disk(self, path: Path) -> str:
        """The sha256 of a file, after the file has been synced to disk."""
        found = weights.hash_file(path, self.stop, self.count_hashed)
        weights.sync(path)
        return found

    def count_hashed(self, count: int) -> None:
        """Adds to the displayed progress; several threads may lose an update, which affects the display only."""
        self.hashed += count

    def take_hashes(self, wait: bool) -> None:
        """Accepts files with the right hash; deletes the others and downloads them again, up to HASH_ATTEMPTS times."""
        for future in list(self.hashing):
            while wait and not future.done():
                concurrent.futures.wait([future], timeout=curl.TICK_S)
                self.report()
            if future.done():
                file, path = self.hashing.pop(future)
                if future.result() == file.sha256:
                    self.accept(file, path)
                else:
                    self.reject(file, path, future.result())

    def accept(self, file: File, path: Path) -> None:
        """Adds a verified file to the receipt of its folder; a part is renamed first."""
        if self.job.folder in path.parents:
            self.receipt.add(file)
            self.offer(file, path)
            return
        final = self.verified / file.path
        final.parent.mkdir(parents=True, exist_ok=True)
        path.replace(final)
        sync_folder(final.parent)
        self.staged.add(file)
        self.staged.write(self.job)
        self.offer(file, final)

    def reject(self, file: File, path: Path, found: str) -> None:
        """Makes a file pending again. Raises FetchError after HASH_ATTEMPTS wrong downloads."""
        self.pending[file.path] = file
        if self.job.folder in path.parents:  # a service may be reading it: keep it until its replacement is complete
            return self.take_whole_part(file)  # the replacement may be complete already
        path.unlink()
        if self.swarm and self.swarm.attribute_corruption(file, found):
            return
        self.wrong_hashes[file.path] += 1
        times = self.wrong_hashes[file.path]
        self.problem = f"{file.path}: sha256 is {found}, not the locked {file.sha256}"
        if times >= HASH_ATTEMPTS:
            raise FetchError(weights.EXIT_HASH, f"{self.problem} ({times} downloads)")

    def missing_bytes(self) -> int:
        """The bytes that are still to be downloaded."""
        return sum(file.size - self.part_bytes(file) for file in self.pending.values())

    def require_disk(self) -> None:
        """Raises FetchError when the missing files do not fit."""
        job, needed = self.job, self.missing_bytes()
        free = shutil.disk_usage(job.folder.parent).free
        if needed and needed + job.reserve_bytes > free:
            kept = f" and {bytes_text(job.reserve_bytes)} to spare" if job.reserve_bytes else ""
            message = f"{job.repo} needs {bytes_text(needed)} more{kept}, only {bytes_text(free)} free"
            raise FetchError(weights.EXIT_DISK, f"{job.folder.parent}: disk full: {message}")

    def download(self, lock: int) -> None:
        """Runs curl until nothing is pending. curl's own --retry would restart a broken part from 0."""
        tries, missing = 0, self.missing_bytes()
        while self.pending or self.hashing:
            self.transfer(lock, list(self.pending.values()))
            self.take_hashes(wait=True)
            self.take_whole_parts()
            if not self.pending:
                continue
            before, missing = missing, self.missing_bytes()
            tries = 0 if missing < before else tries + 1
            again = f"try {tries + 1} of {self.job.attempts}"
            if tries >= self.job.attempts:
                raise FetchError(weights.EXIT_FAILED, f"gave up after {tries} tries without progress: {self.problem}")
            self.wait_until(time.monotonic() + self.pause(tries), again)
            self.doing = f"{again}: {self.problem}" if tries else ""

    def wait_until(self, end: float, what: str) -> None:
        """Waits, and reports the reason and the remaining time, as the hub may ask for a long pause."""
        while (left := end - time.monotonic()) > 0:
            self.doing = f"waiting {left:.0f} s before {what}: {self.problem}"
            self.report()
            time.sleep(min(left, curl.TICK_S))
        self.doing = ""

    def pause(self, tries: int) -> float:
        """Seconds to pause after this many tries without progress; at least as long as the hub asked for."""
        asked, self.retry_after_s = self.retry_after_s, 0.0
        return max(asked, min(LONGEST_PAUSE_S, 0.5 * 2.0**tries) * random.uniform(0.75, 1.25))

    def hub_transfer(self, file: File, part: Path | None = None) -> str:
        """curl's configuration for a file from the hub; part: the file to write to, if not the usual one."""
        return configuration(self.job, file, part or self.part(file))

    def transfer(self, lock: int, batch: list[File]) -> None:
        """Downloads each file of a batch once, `hub_transfers` at a time, and hashes complete files meanwhile."""
        waiting, files = batch[::-1], {file.path: file for file in batch}
        with contextlib.closing(curl.Transfers(lock)) as transfers:
            while waiting or transfers.running:
                while waiting and transfers.running < self.job.hub_transfers:
                    file = waiting.pop()
                    transfers.begin(file.path, self.hub_transfer(file), file.size)
                for path, transfer in transfers.ended(curl.TICK_S):
                    self.judge(files[path], transfer)
                self.take_hashes(wait=False)
                self.report()

    def judge(self, file: File, transfer: curl.Transfer) -> None:
        """Acts on the end of a transfer: verify the file, continue it, restart it, or give up with FetchError."""
        part, hub = self.part(file), urllib.parse.urlsplit(self.job.hub).netloc
        size = self.part_bytes(file)
        if transfer.status in (401, 403, 404) and transfer.host == hub:
            code = weights.EXIT_GONE if transfer.status == 404 else weights.EXIT_DENIED
            raise FetchError(code, denial(self.job, file, transfer.status))
        if transfer.code == 0 and size == file.size:
            return self.verify(file, part)
        self.retry_after_s = max(self.retry_after_s, transfer.retry_after_s)
        reason = transfer.message or f"{size} bytes instead of {file.size}"
        self.problem = f"{file.path} from {transfer.host}: {reason}"
        self.doing = f"will try again: {self.problem}"
        if transfer.code == curl.WRITE_FAILED:
            self.require_disk()
        if transfer.code == curl.WRITE_FAILED or transfer.code in curl.TLS_FAILED:
            raise FetchError(weights.EXIT_FAILED, self.problem)
        if transfer.code in (0, curl.TOO_LARGE, *curl.START_OVER) or transfer.status == 416:
            part.unlink(missing_ok=True)

    def put_in_place(self) -> None:
        """Makes verified files visible: renames the whole folder, or each file into a folder that exists."""
        folder = self.job.folder
        if self.staged.entries and not folder.exists():
            self.verified.rename(folder)
            sync_folder(folder.parent)
        else:
            for path in self.staged.entries:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (self.verified / path).replace(folder / path)
                sync_folder((folder / path).parent)
            self.receipt.entries |= self.staged.entries
            if self.receipt.entries != Receipt(folder).entries:
                self.receipt.write(self.job)
            shutil.rmtree(self.verified, ignore_errors=True)
        for file in self.job.files:
            self.offer(file, folder / file.path)
        for empty, _, _ in os.walk(self.incoming, topdown=False):
            with contextlib.suppress(OSError):  # a folder with parts of another job of this revision stays
                os.rmdir(empty)

    def report(self, final: bool = False) -> None:
        """Reports changed progress to stdout and systemd, at most every two seconds."""
        total = sum(file.size for file in self.job.files)
        done = total - self.missing_bytes()
        now = time.monotonic()
        hashing = f"hashing, {bytes_text(self.hashed)} so far" if self.hashing else ""
        details = ", ".join(filter(None, (self.swarm.shares() if self.swarm else "bytes", hashing, self.doing)))
        if final or (now - self.reported[0] >= REPORT_EVERY_S and (done, details) != self.reported[1:]):
            if done != self.reported[1] or final:
                with contextlib.suppress(OSError):  # the reader may be gone; the download continues
                    print(f"progress {done} {total} bytes", flush=True)
            self.reported = (now, done, details)
            notify_status(f"{done}/{total} {details}")


def main(arguments: list[str]) -> int:
    """Parses the command line and runs; returns the exit code."""
    parser = argparse.ArgumentParser(prog="fetch_weights.py", description="Fetch the weights of one checkpoint.")
    parser.add_argument("--check", action="store_true", help="report which files are complete, missing or bad")
    parser.add_argument("--deep", action="store_true", help="with --check: hash every file")
    parser.add_argument("job", type=Path)
    options = parser.parse_args(arguments)
    weights.end_on_signals()
    os.umask(0o022)

    def run() -> int:
        job = weights.load_job(options.job)
        if not options.check:
            Fetch(job).run()
            return weights.EXIT_COMPLETE
        found = weights.check(job, options.deep)
        print(json.dumps(found))
        return weights.EXIT_COMPLETE if found["complete"] else weights.EXIT_FAILED

    return weights.exit_code(run, str(options.job))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
