"""`rigup uninstall`: it takes one host."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import CommandLine


def test_one_host_at_a_time(tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a", "b"])
    done = rigup.call("uninstall", "boxes", "--yes", "--json")
    assert (done.code, done.errors) == (2, [("boxes matches 2 hosts", "name one host")])
