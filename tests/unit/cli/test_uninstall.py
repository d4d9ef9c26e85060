"""`rigup uninstall`: it takes one host."""

from __future__ import annotations

from pathlib import Path

from tests.command_line import CommandLine


def test_one_host_at_a_time(tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a", "b"])
    done = rigup.call("uninstall", "boxes", "--yes", "--json")
    assert (done.code, done.errors) == (2, [("boxes matches 2 hosts", "name one host")])


def test_a_pattern_or_a_group_is_not_a_host(tmp_path: Path) -> None:
    rigup = CommandLine(tmp_path)
    rigup.describe(["a"])
    for word in ("*", "boxes", "[a]"):
        done = rigup.call("uninstall", word, "--yes", "--json")
        assert (done.code, done.errors[0][1]) == (2, "name it: rigup uninstall a")
