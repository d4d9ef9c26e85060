"""Completion as a shell does it, and the man page as man(1) reads it, both from the parser of the command line."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rigup.cli import main
from rigup.cli.completion import SHELLS, script
from rigup.cli.main import VERBS, build_parser

ASK_BASH = """
. "$1"; shift
function=$(complete -p rigup | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
"$function" rigup "${COMP_WORDS[$COMP_CWORD]}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script of each shell, by its name."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(script(build_parser(), shell))
    return folder


def in_bash(scripts: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK_BASH, "ask", str(scripts / "bash"), *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=scripts,
    )
    return sorted(done.stdout.split())


def in_fish(scripts: Path, *words: str) -> list[str]:
    ask = f"source {scripts / 'fish'}; complete -C '{' '.join(words)}'"
    done = subprocess.run(["fish", "-N", "-c", ask], capture_output=True, text=True, check=True, cwd=scripts)
    return sorted(line.partition("\t")[0] for line in done.stdout.splitlines())


ASK = [
    pytest.param(in_bash, id="bash"),
    pytest.param(in_fish, id="fish", marks=pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")),
]


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["rigup", "pla"], ["plan"]),
        (["rigup", "apply", "--roll"], ["--rolling"]),
        (["rigup", "fit", "--sort", ""], ["context", "quality", "speed"]),
        (["rigup", "completion", "f"], ["fish"]),
    ],
    ids=["verb", "option", "choice", "argument"],
)
def test_a_shell_offers_what_fits(
    ask: Callable[..., list[str]], words: list[str], offered: list[str], scripts: Path
) -> None:
    assert ask(scripts, *words) == offered


def test_files_and_folders_where_one_is_expected(scripts: Path) -> None:
    (scripts / "folder").mkdir()
    assert in_bash(scripts, "rigup", "lock", "--vendor", "f") == ["folder"]
    assert in_bash(scripts, "rigup", "plan", "f") == ["fish", "folder"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_has_every_verb_and_option(shell: str, scripts: Path) -> None:
    text = (scripts / shell).read_text()
    assert [verb for verb in VERBS if verb not in text] == []
    assert [option for option in options(build_parser()) if option.lstrip("-") not in text] == []


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_reads_its_script(scripts: Path) -> None:
    subprocess.run(["zsh", "-n", str(scripts / "zsh")], check=True)


def test_the_man_page_has_what_the_help_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", "man"]) == 0
    page = capsys.readouterr().out
    plain = page.replace("\\-", "-")
    assert re.match(r'\.TH RIGUP 1 "" "rigup \S+" "User Commands"\n\.SH NAME\nrigup - \S', plain)
    assert [verb for verb in VERBS if f'.SH "RIGUP {verb.upper()}"' not in plain] == []
    assert [option for option in options(build_parser()) if f"\\fB{option}\\fR" not in plain] == []
    assert "exit codes: 0 success, 1 refused" in plain
    assert [line for line in page.splitlines() if line.startswith("'") or "%(" in line] == []


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_troff_has_nothing_to_say_about_the_man_page() -> None:
    words = ["groff", "-ww", "-man", "-Tutf8"]
    done = subprocess.run(words, input=script(build_parser(), "man"), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "--rolling" in done.stdout


def test_something_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err == 'rigup: completion: WHAT: unknown "tcsh"\nhint: rigup completion --help\n'


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The long options of every verb, but those that the help hides."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from options(inner)
        elif action.help is not argparse.SUPPRESS:
            yield from (option for option in action.option_strings if option.startswith("--"))
