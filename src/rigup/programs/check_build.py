"""Runs on a host, as an unprivileged user: checks that a build runs there. Builders also check what they build from.

usage: check_build.py FOLDER EXPECTED PROGRAM [ARGUMENT ...]

PROGRAM is relative to FOLDER. Exits with an error line unless it succeeds and its output contains EXPECTED.
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

CHECK_SECONDS = 60
SHOWN = 300


def verify(path: Path, sha256: str) -> None:
    """Exits with both hashes when a file is not the pinned one."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != sha256:
        sys.exit(f"{path.name}: sha256 is {digest.hexdigest()}, not the locked {sha256}")


def answer_of(
    folder: Path, check: list[str], expected: str, seconds: float = 0, environment: dict[str, str] | None = None
) -> str:
    """The output of a build's program; exits if it cannot run, fails, or lacks the expected text.

    seconds: its limit, CHECK_SECONDS for 0. environment: None for that of this process.
    """
    limit = seconds or CHECK_SECONDS
    try:
        done = subprocess.run(
            [str(folder / check[0]), *check[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            env=environment,
        )
    except OSError as error:
        sys.exit(f"cannot run {check[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(check)}: no answer within {limit} s")
    answer = (done.stdout + done.stderr).strip()
    said = " ".join(answer.split())[-SHOWN:] or "no output"
    if done.returncode < 0:
        name = signal.strsignal(-done.returncode)  # of a real-time signal, too
        sys.exit(f"{' '.join(check)}: ended by signal {-done.returncode} ({name}): {said}")
    if done.returncode:
        sys.exit(f"{' '.join(check)}: exit status {done.returncode}: {said}")
    if expected not in answer:
        sys.exit(f'{" ".join(check)}: expected "{expected}" in its output, got: {said}')
    return answer


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    answer_of(Path(sys.argv[1]), sys.argv[3:], sys.argv[2])
