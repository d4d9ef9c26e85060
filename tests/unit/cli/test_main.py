"""The command line itself: help, exit codes, streams, colours, and bad input that no host is needed for."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from rigup.cli.main import VERBS, _run, build_parser
from tests.command_line import DESCRIPTION, CommandLine

ESCAPE = "\x1b"
OWNER = "check the permissions of the file and its parent directories"


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path)
    made.describe(["a.example", "b.example"])
    return made


@pytest.mark.parametrize("words", [(), *((verb,) for verb in VERBS)], ids=lambda words: " ".join(words) or "rigup")
def test_help_has_examples_of_the_very_verb(line: CommandLine, words: tuple[str, ...]) -> None:
    done = line.call(*words, "--help")
    assert (done.code, done.err) == (0, "")
    examples = done.out.partition("\nexamples:\n")[2]
    assert f"rigup {' '.join(words)}".strip() in examples
    assert "exit codes:" in done.out or words == ("lab",)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("nonsense", 'unknown verb "nonsense"', "rigup --help"),
        ("statsu", 'unknown verb "statsu"', "rigup status"),
        ("lab upp", 'lab: unknown verb "upp"', "rigup lab up"),
        ("diff --nonsense", "diff: unknown option --nonsense", "rigup diff --help"),
        ("plan --limt=a", "plan: unknown option --limt", "rigup plan --limit"),
        ("lab up --host 2 --nmae x", "lab up: unknown option --nmae", "rigup lab up --name"),
        ("plan a.py b.py", 'plan: one word too many: "b.py"', "rigup plan --help"),
        ("log", "log: HOST: missing", "rigup log --help"),
        ("plan --limit", "plan: --limit: needs a value", "rigup plan --help"),
    ],
)
def test_what_no_verb_takes(line: CommandLine, words: str, message: str, hint: str) -> None:
    done = line.call(*words.split())
    assert (done.code, done.out) == (2, "")
    assert done.err == f"rigup: {message}\nhint: {hint}\n"


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        ("chat chat --json -", {"service": "chat", "prompt": "-"}),
        ("chat chat --json Hello", {"service": "chat", "prompt": "Hello"}),
        ("chat --json chat Hello", {"service": "chat", "prompt": "Hello"}),
        ("up box --yes Model", {"host": "box", "model": "Model"}),
        ("logs chat --json coder", {"service": ["chat", "coder"]}),
        ("plan --json a.py", {"inventory": "a.py"}),
    ],
)
def test_words_behind_options_go_where_they_would_without_them(words: str, taken: dict[str, object]) -> None:
    args = vars(build_parser(words.split()[0]).parse_args(words.split()))
    assert {key: args[key] for key in taken} == taken and args["json" if "--json" in words else "yes"] is True


def test_no_words_at_all_print_the_help(line: CommandLine) -> None:
    done = line.run()
    assert (done.code, done.err) == (0, "")
    assert done.out == line.run("--help").out


def test_exit_codes_of_plan(line: CommandLine) -> None:
    assert line.run("plan").code == 0
    line.write("group_data/boxes.py", DESCRIPTION.replace('Instruct"', 'Instruct", "context": 10**6'))
    assert line.run("plan").code == 1
    assert line.run("plan", "gone.py").code == 2


def test_a_refused_plan_is_told_before_any_host_is_asked(line: CommandLine) -> None:
    line.write("group_data/boxes.py", DESCRIPTION.replace('Instruct"', 'Instruct", "flags": {"--nosuch": 1}'))
    done = line.run("apply", "--yes", "--json", "--limit", "a.example")
    assert done.code == 1
    ((message, hint),) = done.errors
    assert message == "a.example: chat: llama.cpp b11434 has no option --nosuch [unknown-option]"
    assert hint.endswith("see what fits instead: rigup plan")


def test_json_is_all_of_standard_output(line: CommandLine) -> None:
    done = line.run("plan", "--json")
    assert [host["verdict"] for host in done.json["hosts"]] == ["ok", "ok"]
    assert done.err == ""


def test_an_error_with_json_is_json_and_words_on_standard_error(line: CommandLine) -> None:
    done = line.run("plan", "--json", "gone.py")
    assert list(done.json) == ["schema", "error"]
    error = done.json["error"]
    assert error["message"].startswith("gone.py: ") and "inventories/fleet.py" in error["hint"]
    assert done.err == f"rigup: {error['message']}\nhint: {error['hint']}\n"


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (PermissionError(13, "Permission denied", "/srv/x"), "/srv/x: Permission denied", OWNER),
        (OSError(36, "File name too long", "x"), "x: File name too long", None),
        (OSError("no words of the system's"), "no words of the system's", None),
    ],
    ids=["not allowed", "named", "without a number"],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_this_machine_refuses_is_one_message(
    error: OSError, message: str, hint: str | None, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: Namespace) -> int:
        raise error

    assert _run(Namespace(run=run, json=as_json)) == 2
    said = capsys.readouterr()
    assert said.err == f"rigup: {message}\n" + (f"hint: {hint}\n" if hint else "")
    assert said.out == (json.dumps({"schema": 1, "error": {"message": message, "hint": hint}}) + "\n") * as_json


def test_a_name_that_no_file_can_have(line: CommandLine) -> None:
    done = line.run("plan", "x" * 300)
    assert (done.code, done.err.splitlines()[0]) == (2, f"rigup: {'x' * 300}: File name too long")
    assert "\nhint: check that" in done.err


def test_limit(line: CommandLine) -> None:
    assert [host["host"] for host in line.call("plan", "--json", "--limit", "b.*").json["hosts"]] == ["b.example"]


def test_piped_output_holds_no_escape_codes(line: CommandLine) -> None:
    assert ESCAPE not in line.run("plan").text


def test_a_terminal_gets_colours_unless_no_color_says_otherwise(line: CommandLine) -> None:
    assert f"{ESCAPE}[1m" in line.on_terminal("plan").out
    line.write("group_data/boxes.py", DESCRIPTION.replace('Instruct"', 'Instruct", "flags": {"--nosuch": 1}'))
    assert f"{ESCAPE}[31mrefused" in line.on_terminal("plan").out
    plain = line.on_terminal("plan", NO_COLOR="1").out
    assert "refused: " in plain
    assert f"{ESCAPE}[3" not in plain


def test_a_reader_that_leaves_early_is_not_an_error(line: CommandLine) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "rigup", "plan"],
        cwd=line.fleet,
        env=line.environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(write)
    assert done.stderr == ""


def test_a_full_disk_behind_standard_output_is_one_line(line: CommandLine) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "rigup", "plan"]
        done = subprocess.run(
            words,
            cwd=line.fleet,
            env=line.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, f"rigup: {os.strerror(errno.ENOSPC)}\n")
