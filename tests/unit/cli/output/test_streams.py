"""Standard streams that nobody reads any more: a run goes on, a verb that only tells something ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from types import SimpleNamespace

from rigup.cli import main
from rigup.operations.primitives.progress import Progress

def work(args):
    from rich.console import Console
    sys.stdin.readline()
    for number in range(3):
        print("on standard error", number, file=sys.stderr, flush=True)
        Console(stderr=True).print("drawn")
        print("on standard output", number, flush=True)
        Console().print("told")
    open("done", "w").write("to its end")
    return 0

def arguments(parser):
    pass

class Verb:
    EPILOG = ""
    add_arguments, run = staticmethod(arguments), staticmethod(work)

main.importlib = SimpleNamespace(import_module=lambda name: Verb)  # for main alone
sys.exit(main.main())
"""


def run(verb: str, folder: Path, **streams: int) -> int:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, verb], cwd=folder, stdin=subprocess.PIPE, text=True, **streams
    )
    process.communicate("go\n", timeout=60)
    return process.returncode


def closed_pipe() -> int:
    """The writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("both", [True, False], ids=["2>&1 | head", "2> >(head)"])
def test_an_apply_that_nobody_watches_any_more_goes_on(tmp_path: Path, both: bool) -> None:
    pipe = closed_pipe()
    streams = {"stdout": pipe, "stderr": pipe} if both else {"stdout": subprocess.DEVNULL, "stderr": pipe}
    assert run("apply", tmp_path, **streams) == 0
    assert (tmp_path / "done").read_text() == "to its end"


def test_a_status_that_nobody_reads_ends(tmp_path: Path) -> None:
    assert run("status", tmp_path, stdout=closed_pipe(), stderr=subprocess.DEVNULL) == 1
    assert not (tmp_path / "done").exists()


def test_a_status_whose_standard_error_nobody_reads_tells_all(tmp_path: Path) -> None:
    assert run("status", tmp_path, stdout=subprocess.DEVNULL, stderr=closed_pipe()) == 0
    assert (tmp_path / "done").exists()


def test_a_full_disk_under_standard_error_ends_nothing(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert run("apply", tmp_path, stdout=subprocess.DEVNULL, stderr=full.fileno()) == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed_from_the_start(tmp_path: Path, closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {closed}', sys.executable, "-c", PROGRAM, "apply"],
        cwd=tmp_path,
        input="go\n",
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert (tmp_path / "done").exists()
    assert "Traceback" not in done.stderr
