"""Many questions in one command: what comes back is what each would have said by itself."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.connectors.util import CommandOutput, OutputLine

from rigup.connection.fact_batch import CommandResult, answers_in, digest, script
from rigup.connection.fact_cache import FactReader


def output_of(text: str) -> CommandOutput:
    done = subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, timeout=60)
    streams = (("stdout", done.stdout), ("stderr", done.stderr))
    return CommandOutput([OutputLine(name, line) for name, text in streams for line in text.split("\n")[:-1]])


QUESTIONS = {
    "echo one; echo two": CommandResult(True, (("stdout", "one"), ("stdout", "two"))),
    "printf unfinished": CommandResult(True, (("stdout", "unfinished"),)),
    "echo; echo": CommandResult(True, (("stdout", ""), ("stdout", ""))),
    "true": CommandResult(True, ()),
    "false": CommandResult(False, ()),
    'echo out; echo "it\'s wrong" >&2; exit 3': CommandResult(False, (("stdout", "out"), ("stderr", "it's wrong"))),
    "cat; echo nothing to read": CommandResult(True, (("stdout", "nothing to read"),)),
}


def test_each_answer_is_what_the_command_says_by_itself() -> None:
    questions = QUESTIONS
    assert answers_in(output_of(script(questions))) == {digest(text): answer for text, answer in questions.items()}


def test_questions_are_asked_in_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    question = "sh -c 'echo $LC_ALL'"
    assert answers_in(output_of(script([question]))) == {digest(question): CommandResult(True, (("stdout", "C"),))}


def test_a_question_that_is_asked_alone_is_so_too_and_stays_one_that_is_remembered() -> None:
    reader = FactReader(SimpleNamespace(name="box", current_op_hash=None))
    told: list[dict[str, Any]] = []

    def run(command: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        told.append(arguments)
        return True, CommandOutput([])

    reader.answer("stat /", {"_sudo": True}, run)
    assert [arguments["_env"] for arguments in told] == [{"LC_ALL": "C"}]
    assert reader.questions() == ["stat /"]


def test_noise_around_the_answers_is_nobodys() -> None:
    noisy = "echo welcome; echo trouble >&2\n" + script(["echo one"]) + "echo bye\n"
    assert answers_in(output_of(noisy)) == {digest("echo one"): CommandResult(True, (("stdout", "one"),))}


@pytest.mark.parametrize("lines", [3, 4, 5])
def test_an_answer_that_was_cut_off_is_none(lines: int) -> None:
    whole = output_of(script(["echo one; echo two", "echo three"]))
    first = [line for line in whole.combined_lines if line.buffer_name == "stdout"][:lines]
    cut = CommandOutput([*first, *(line for line in whole.combined_lines if line.buffer_name == "stderr")])
    expected = {digest("echo one; echo two")} if lines > 4 else set()
    assert set(answers_in(cut)) == expected
