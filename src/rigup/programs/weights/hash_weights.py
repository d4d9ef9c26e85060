"""Hashes the files of a checkpoint that lie on the host already, once, and keeps a receipt of those that are as locked.

    hash_weights.py JOB    JOB as for fetch_weights.py; needs weights_folder.py and unit_status.py in its folder

The files are seen in the job's folder, as the services see them; `place` is the folder in which they really are, for
messages. Nothing but the receipt is written. The exit codes are the EXIT_ constants of weights_folder.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

if __package__:
    from rigup.programs.unit_status import notify_status
    from rigup.programs.weights import weights_folder as weights
    from rigup.programs.weights.weights_folder import FetchError, FetchJob, File, Receipt
else:  # a host has the programs in one folder, without rigup, and no bytecode
    sys.dont_write_bytecode = True
    import weights_folder as weights  # type: ignore[import-not-found, no-redef]
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]
    from weights_folder import FetchError, FetchJob, File, Receipt  # type: ignore[no-redef]

REPORT_EVERY_S = 2.0


class Hashing:
    """One run of one job. Raises FetchError for a file that cannot be read or is not as locked."""

    def __init__(self, job: FetchJob) -> None:
        self.job = job
        self.receipt = Receipt(job.folder)
        self.done = 0
        self.total = sum(file.size for file in job.files)
        self.reported = 0.0

    def run(self) -> None:
        """Hashes every file that the receipt does not cover, and adds it; the receipt is written after each."""
        for file in self.job.files:
            if self.receipt.covers(file):
                self.count(file.size)
                continue
            self.receipt.entries[file.path] = self.checked(file)
            self.receipt.write(self.job)

    def checked(self, file: File) -> dict[str, Any]:
        """A file's entry in the receipt, from before it was hashed. Raises FetchError where it is not as locked."""
        path, shown = self.job.folder / file.path, f"{self.job.place or self.job.folder}/{file.path}"
        try:
            size = weights.size_of(path)
            seen = self.receipt.entry(file) if size == file.size else None
            found = weights.hash_file(path, None, self.count) if seen else None
        except PermissionError:
            raise FetchError(
                weights.EXIT_DENIED, f"{shown}: services may not read it; on the host: chmod o+r {shown}"
            ) from None
        if size is None:
            raise FetchError(weights.EXIT_FAILED, f"{shown}: does not exist, or is not a regular file")
        if seen is None:
            raise FetchError(weights.EXIT_HASH, f"{shown}: {size:,} bytes, but {file.size:,} are locked")
        if self.receipt.entry(file) != seen:
            raise FetchError(weights.EXIT_FAILED, f"{shown}: changed while it was hashed")
        if found != file.sha256:
            raise FetchError(weights.EXIT_HASH, f"{shown}: sha256 is {found}, not the locked {file.sha256}")
        return seen

    def count(self, count: int) -> None:
        """Adds to the displayed progress."""
        self.done += count
        if time.monotonic() - self.reported >= REPORT_EVERY_S:
            self.reported = time.monotonic()
            notify_status(f"{self.done}/{self.total} bytes, hashing")


def main(arguments: list[str]) -> int:
    """Runs one job; returns the exit code."""
    weights.end_on_signals()
    return weights.exit_code(lambda: Hashing(weights.load_job(Path(arguments[0]))).run(), arguments[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
