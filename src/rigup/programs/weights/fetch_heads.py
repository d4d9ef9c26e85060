"""Downloads the beginnings of a checkpoint's files: as much of a GGUF file as its header may be long.

    fetch_heads.py JOB    JOB as for fetch_weights.py

Each file in the job's folder gets the size of the whole one; what was not downloaded is a hole. Nothing is verified.
The program needs weights_folder.py, curl_transfers.py, hub_access.py and unit_status.py in its folder.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import urllib.parse
from pathlib import Path

if __package__:
    from rigup.programs.unit_status import notify_status
    from rigup.programs.weights import curl_transfers as curl
    from rigup.programs.weights import weights_folder as weights
    from rigup.programs.weights.hub_access import configuration, denial
    from rigup.programs.weights.weights_folder import FetchError, FetchJob, File, size_of
else:  # a host has the programs in one folder, without rigup, and no bytecode
    sys.dont_write_bytecode = True
    import curl_transfers as curl  # type: ignore[import-not-found, no-redef]
    import weights_folder as weights  # type: ignore[import-not-found, no-redef]
    from hub_access import configuration, denial  # type: ignore[import-not-found, no-redef]
    from unit_status import notify_status  # type: ignore[import-not-found, no-redef]
    from weights_folder import FetchError, FetchJob, File, size_of  # type: ignore[no-redef]

# The first of several has the vocabulary and its merges, 5 to 16 MB in today's models; each has a list of its tensors.
FIRST, NEXT = 2**25, 2**21
ATTEMPTS = 5


def head_bytes(size: int, place: int) -> int:
    """How much is read of a file of this size. place: among the checkpoint's files, which are in order."""
    return min(size, NEXT if place else FIRST)


def fetch(job: FetchJob, file: File, most: int) -> None:
    """Downloads the first bytes of a file, unless they are there. Raises FetchError."""
    target, problem = job.folder / file.path, ""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.touch()
    for attempt in range(ATTEMPTS):
        if (size_of(target) or 0) >= most:
            return os.truncate(target, file.size)
        time.sleep(attempt)
        target.unlink(missing_ok=True)
        with open(os.devnull) as nothing, contextlib.closing(curl.Transfers(nothing.fileno())) as transfers:
            transfers.begin(file.path, configuration(job, file, target, most), most)
            while not (ended := transfers.ended(curl.TICK_S)):
                pass
        transfer = ended[0][1]
        if transfer.status in (401, 403, 404) and transfer.host == urllib.parse.urlsplit(job.hub).netloc:
            code = weights.EXIT_GONE if transfer.status == 404 else weights.EXIT_DENIED
            raise FetchError(code, denial(job, file, transfer.status))
        problem = f"{file.path} from {transfer.host}: {transfer.message}"
    raise FetchError(weights.EXIT_FAILED, problem)


def main(arguments: list[str]) -> int:
    """Downloads the beginning of each file of a job; returns the exit code."""
    (path,) = arguments
    weights.end_on_signals()
    os.umask(0o022)

    def run() -> int:
        job = weights.load_job(Path(path))
        for place, file in enumerate(job.files):
            notify_status(f"{place}/{len(job.files)} beginnings of files")
            fetch(job, file, head_bytes(file.size, place))
        return weights.EXIT_COMPLETE

    return weights.exit_code(run, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
