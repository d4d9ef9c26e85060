"""A new user's first day: from the wheel to a fleet and back, task by task, on machines of the lab. Run it as root.

    python -m benchmarks.first_day [--json]

Builds the wheel of this checkout, installs it into an environment of its own, and does what a new user does, in an
empty folder with nothing but the installed `rigup`, ssh and OpenAI's client. Every task is checked, and timed with its
checks. One that needs a task that failed is not tried. llama.cpp comes from this machine's cache of builds, or is
compiled into it first (a note says which); the hub is the lab's. Exit code 1 if a task failed or was not tried.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import smallest
from benchmarks.first_day import first_hour, serving, several_hosts
from benchmarks.first_day.new_user import NewUser, wheel_of
from benchmarks.first_day.task import FAILED, OK, Outcome, slowest, walked
from rigup.units import seconds_text

TASKS = (*first_hour.TASKS, *serving.TASKS, *several_hosts.TASKS)
# What needs no engine, which might have to be compiled.
FEW = ("install", "empty folder", "what fits", "machines", "lab down")


def main() -> int:
    """Walks, prints, and says whether all went well."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_day", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="TASK", choices=[task.name for task in TASKS], help="this task; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print the outcomes as one JSON document")
    args = smallest.arguments(parser, " ".join(f"--only '{name}'" for name in FEW))
    tasks = [task for task in TASKS if not args.only or task.name in args.only]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="first-day-") as folder:
        user = NewUser(Path(folder), wheel_of(Path(folder) / "wheel"))
        try:
            for outcome in walked(tasks, user):
                outcomes.append(outcome)
                print(line(outcome), file=sys.stderr, flush=True)
                if outcome.result == FAILED:
                    print(outcome.note, file=sys.stderr, flush=True)
        finally:
            user.end()
    print(document(outcomes) if args.json else table(outcomes))
    return 0 if all(outcome.result == OK for outcome in outcomes) else 1


def line(outcome: Outcome) -> str:
    """One row of the table; of a long note its first line."""
    note = (outcome.note.splitlines() or [""])[0] if outcome.result != OK else outcome.note
    return f"| {outcome.task} | {seconds_text(outcome.seconds)} | {outcome.result} | {note} |"


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a row a task, what was slowest, and what failed in full."""
    lost = [outcome for outcome in outcomes if outcome.result != OK]
    last = slowest(outcomes)
    whole = sum(outcome.seconds for outcome in outcomes)
    lines = [
        "| task | time | result | |",
        "| --- | --- | --- | --- |",
        *map(line, outcomes),
        "",
        f"{len(outcomes) - len(lost)} of {len(outcomes)} tasks in {seconds_text(whole)}; "
        f"the slowest is {last.task}: {seconds_text(last.seconds)}. {_machine()}",
        *(f"\n{outcome.task}: {outcome.note}" for outcome in lost),
    ]
    return "\n".join(lines)


def document(outcomes: Sequence[Outcome]) -> str:
    """The same for programs."""
    found = [asdict(outcome) for outcome in outcomes]
    return json.dumps({"schema": 1, "tasks": found, "slowest": slowest(outcomes).task, "machine": _machine()}, indent=1)


def _machine() -> str:
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}."


if __name__ == "__main__":
    sys.exit(main())
