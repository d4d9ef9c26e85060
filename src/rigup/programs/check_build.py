"""Runs on a host, as an unprivileged user: checks that a build runs there.

usage: check_build.py FOLDER EXPECTED PROGRAM [ARGUMENT ...]

PROGRAM is relative to FOLDER. Exits with an error line unless it succeeds and its output contains EXPECTED.
Python 3.10 standard library only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECK_SECONDS = 60
SHOWN = 300


def answer_of(folder: Path, check: list[str], expected: str) -> str:
    """The output of a build's program; exits if it cannot run, fails, or lacks the expected text."""
    try:
        done = subprocess.run(
            [str(folder / check[0]), *check[1:]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CHECK_SECONDS,
        )
    except OSError as error:
        sys.exit(f"cannot run {check[0]}: {error.strerror}")
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(check)}: no answer within {CHECK_SECONDS} s")
    answer = (done.stdout + done.stderr).strip()
    if done.returncode or expected not in answer:
        sys.exit(f'{" ".join(check)}: expected "{expected}" in its output, got: {" ".join(answer.split())[-SHOWN:]}')
    return answer


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    answer_of(Path(sys.argv[1]), sys.argv[3:], sys.argv[2])
