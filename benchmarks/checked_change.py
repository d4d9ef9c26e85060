"""How long a change is checked: what CI runs, in a new clone, after each of five changes made one at a time.

    python -m benchmarks.checked_change               nothing, a hint, the planner, the driver's role, the download
    python -m benchmarks.checked_change --cold        one run with an empty cache, and so with nothing recorded

As root, on a machine that does nothing else, and after `.ci/run` has passed on the commit that is checked out: what
passed then is in the cache, with what it rested on. Each change leaves every test as it is, so that all must pass.
Prints a row a change: its time, and how many tests of machines were skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import smallest
from rigup.cache import cache_folder
from rigup.units import seconds_text

ROOT = Path(__file__).parents[1]
RECORDS = cache_folder() / "tests" / "passed"


class Change(NamedTuple):
    """One text of a file that becomes another. most_s: what it may take."""

    what: str
    most_s: int
    file: str = ""
    was: str = ""
    becomes: str = ""


CHANGES = {
    "nothing": Change("nothing", 300),
    "hint": Change(
        "a reworded hint",
        300,
        "src/rigup/operations/primitives/remote.py",
        "check the free disk space on the host: df -h",
        "look at the free disk space on the host: df -h",
    ),
    "planner": Change(
        "a function of the planner, with equal plans",
        360,
        "src/rigup/planner/assembly.py",
        "    return build.made_for.cuda if pinned and build.made_for else None\n",
        "    made_for = build.made_for if pinned else None\n    return made_for.cuda if made_for else None\n",
    ),
    "driver": Change(
        "the role of the driver",
        1200,
        "roles/driver.py",
        "    carried_out(name=name, function=remove_driver, arguments=((*stuck, *rest),))\n",
        "    left = (*stuck, *rest)\n    carried_out(name=name, function=remove_driver, arguments=(left,))\n",
    ),
    "download": Change(
        "fetch_weights.py",
        1200,
        "src/rigup/programs/weights/fetch_weights.py",
        "REPORT_EVERY_S = 2.0\n",
        "REPORT_EVERY_S = 1.9\n",
    ),
}
COLD = Change("cold, with nothing recorded", 2700)


def main() -> int:
    """Measures and prints; 1 if a run failed or took longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CHANGES), help=f"of {', '.join(CHANGES)}")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--command", default=".ci/run", help="what is timed, in the clone")
    args = smallest.arguments(parser, "--command 'git diff --stat'")
    changes = [CHANGES[name] for name in args.only.split(",")]
    print("| change | time | at most | skipped | load before and after |\n|---|---|---|---|---|", flush=True)
    if args.cold:
        return measure(COLD, args)
    # tests that run at the same time as a smallest form write records, too
    run = measure if args.smallest else with_the_same_records
    return max(run(change, args) for change in changes)


def with_the_same_records(change: Change, args: argparse.Namespace) -> int:
    """A change is taken back, and so is the record that the tests passed with it."""
    with tempfile.TemporaryDirectory() as folder:
        before = shutil.copytree(RECORDS, Path(folder, "before")) if RECORDS.exists() else None
        try:
            return measure(change, args)
        finally:
            shutil.rmtree(RECORDS, ignore_errors=True)
            if before:
                shutil.copytree(before, RECORDS)


def measure(change: Change, args: argparse.Namespace) -> int:
    """One run in a clone of its own."""
    with tempfile.TemporaryDirectory() as folder:
        clone, load = Path(folder, "rigup"), os.getloadavg()[0]
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        make(change, clone)
        environment = {**os.environ, **({"XDG_CACHE_HOME": f"{folder}/cache"} if args.cold else {})}
        log, began = Path(folder, "log"), time.perf_counter()
        with log.open("w") as output:
            status = subprocess.call(args.command, shell=True, cwd=clone, env=environment, stdout=output, stderr=output)
        took, said = time.perf_counter() - began, log.read_text(errors="replace")
        skipped = sum(map(int, re.findall(r", (\d+) unchanged since", said)))
        state = "" if status == 0 else f", failed: exit status {status}"
        loads = f"{load:.1f}, {os.getloadavg()[0]:.1f}"
        print(
            f"| {change.what} | {seconds_text(took)}{state} | {seconds_text(change.most_s)} | {skipped} | {loads} |",
            flush=True,
        )
        if status:
            print(said[-5000:], file=sys.stderr)
        return int(bool(status) or (took > change.most_s and not args.smallest))


def make(change: Change, clone: Path) -> None:
    """Edits the file of the change in the clone."""
    if change.file:
        path = clone / change.file
        text = path.read_text()
        if text.count(change.was) != 1:
            raise SystemExit(f"{change.file} does not have this text once: {change.was.strip()}")
        path.write_text(text.replace(change.was, change.becomes))


if __name__ == "__main__":
    sys.exit(main())
