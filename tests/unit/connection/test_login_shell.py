"""What a login shell prints stays out of what commands print; checked with a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from pyinfra.api.command import StringCommand
from pyinfra.connectors.util import CommandOutput, OutputLine

from rigup.connection.login_shell import MARK, for_any_shell, reading, strip_preamble, with_marker, writing


def lines(*said: tuple[str, str]) -> CommandOutput:
    return CommandOutput([OutputLine(buffer, line) for buffer, line in said])


def test_what_came_before_the_command_is_gone_on_each_stream() -> None:
    output = lines(
        ("stdout", "Welcome"),
        ("stderr", "trouble"),
        ("stdout", f"half a line{MARK}"),
        ("stdout", "result"),
        ("stderr", MARK),
        ("stderr", "warning"),
    )
    kept = strip_preamble(output)
    assert (kept.stdout_lines, kept.stderr_lines) == (["result"], ["warning"])


def test_what_a_command_prints_itself_may_hold_the_mark() -> None:
    assert strip_preamble(lines(("stdout", MARK), ("stdout", "a"), ("stdout", MARK))).stdout_lines == ["a", MARK]


def test_a_command_that_never_began_is_heard() -> None:
    assert strip_preamble(lines(("stderr", "sudo: a password is required"))).stderr == "sudo: a password is required"


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_status_is_the_commands_own(code: int) -> None:
    text = with_marker(StringCommand("sh", "-c", f"'echo out; exit {code}'")).get_raw_value()
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, f"{MARK}\nout\n", f"{MARK}\n")


def test_a_file_with_any_name_travels_whole(tmp_path: Path) -> None:
    path, content = str(tmp_path / "it's a file"), bytes(range(256)) * 9
    subprocess.run(["sh", "-c", writing(path).get_raw_value()], input=content, check=True)
    done = subprocess.run(["sh", "-c", reading(path).get_raw_value()], capture_output=True, check=True)
    assert done.stdout == f"{MARK}\n".encode() + content


def test_a_line_of_sh_reaches_sh_through_a_shell_that_takes_no_newline_and_no_exclamation_mark() -> None:
    line = """sh -c 'printf "%s|" "a b" "it'"'"'s" "back\\\\slash" "!x" "$1"
[ ! -e /nonexistent ] && echo "$HOME"; exit 3' rigup one"""
    portable = for_any_shell(line)
    assert "\n" not in portable and "!" not in portable
    done = subprocess.run(["sh", "-c", portable], capture_output=True, text=True)
    plain = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, plain.stdout, plain.stderr)
    assert plain.stdout.startswith("a b|it's|back\\slash|!x|one|")
    assert for_any_shell("echo plain") == "echo plain"
