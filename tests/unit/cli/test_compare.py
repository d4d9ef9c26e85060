"""`rigup compare`: two hosts are needed; differences as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.cli import compare
from rigup.run.whole_hosts.comparison import Difference
from tests.command_line import CommandLine


@pytest.mark.parametrize("names", [("a", "a"), ("boxes", "a")])
def test_two_hosts_are_needed(names: tuple[str, str], tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a", "b"])
    done = rigup.call("compare", *names, "--json")
    message = f"{names[0]}, {names[1]}: not two hosts"
    assert (done.code, done.errors) == (2, [(message, "name two different hosts of the inventory")])


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    compare._show(("a", "b"), [Difference("driver", "driver", "580", ""), Difference("files", "build x", "", "there")])
    assert capsys.readouterr().out.splitlines() == [
        "part    what     a    b",
        "driver  driver   580  -",
        "files   build x  -    there",
    ]
    compare._show(("a", "b"), [])
    assert capsys.readouterr().out == "a and b do not differ\n"
