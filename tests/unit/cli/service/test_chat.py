"""`rigup chat`: where the prompt comes from, a conversation on a terminal, and the line about the pace."""

from __future__ import annotations

import io
import os
import pty
import select
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.event import Event

from rigup.cli.service.chat import LOOK_SECONDS, Conversation, _prompt, pace
from rigup.errors import InputError
from rigup.operations.service.endpoints import Endpoint
from rigup.run.services.chat import ChatAnswer
from tests.command_line import CommandLine


@pytest.fixture
def rigup(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path)
    made.describe(["a", "b"])
    return made


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["chat", "Hi", "--max-tokens", "0"], "--max-tokens: 0 ", "omit it "),
        (["chta", "Hello"], 'no service "chta" in the inventory', "choose from: chat"),
        (["chat"], "standard input: no prompt", 'write one: rigup chat chat "Hello"'),
        (["chat", "-"], "standard input: no prompt", 'write one: rigup chat chat "Hello"'),
        ([], "chat: SERVICE: missing", "rigup chat --help"),
    ],
    ids=range(5),
)  # fmt: skip
def test_bad_input(rigup: CommandLine, words: list[str], message: str, hint: str) -> None:
    done = rigup.call("chat", *words, "--json")
    error = done.json["error"]
    assert (done.code, error["message"].startswith(message), error["hint"].startswith(hint)) == (2, True, True), error


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("said", [b"\xff\xfe\0", b"a\0b", b"\x80"], ids=["UTF-16", "null", "Latin-1"])
def test_standard_input_that_is_not_text(said: bytes, errors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(said), encoding="utf-8", errors=errors))
    with pytest.raises(InputError, match="standard input: not text"):
        _prompt(Namespace(service="chat", prompt="-", json=False))


def test_json_needs_a_prompt_on_a_terminal(rigup: CommandLine) -> None:
    done = rigup.on_terminal("chat", "chat", "--json")
    assert done.code == 2
    assert "--json needs a prompt" in done.out


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Standard input is a terminal; what is typed there is written to this descriptor."""
    ours, theirs = pty.openpty()
    with open(theirs, closefd=False) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield ours
    os.close(ours)
    os.close(theirs)


def conversation(
    monkeypatch: pytest.MonkeyPatch, asked: list[list[dict[str, str]]], system: str | None = None
) -> Conversation:
    def ask(
        url: str, key: str | None, model: str, messages: Any, show: Callable[[str, bool], None], *_: Any
    ) -> ChatAnswer:
        asked.append([dict(message) for message in messages])
        show("hm", True)
        show("Par\x1b[2Jis", False)
        return ChatAnswer("Paris", "hm", 2, True, 0.1, 0.1, 0.2, "stop")

    monkeypatch.setattr("rigup.cli.service.chat.ask", ask)
    arguments: Any = SimpleNamespace(system=system, max_tokens=None, json=False)
    door: Any = SimpleNamespace(url="http://127.0.0.1:1", check=lambda: None)
    return Conversation(arguments, Endpoint("a", "chat", "http://127.0.0.1:8000", "M"), door, None, "M", Event())


def test_a_conversation_remembers_until_it_begins_again(
    terminal: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[dict[str, str]]] = []
    talk = conversation(monkeypatch, asked, "Be brief.")
    typed = ["one\n", "two\nlines\n", "/new\n", "three\n", "\x04"]

    waiting = select.select

    def type_when_asked(files: list[int], _: Any, __: Any, seconds: float) -> Any:
        if seconds == LOOK_SECONDS:
            os.write(terminal, typed.pop(0).encode())
        return waiting(files, [], [], 0.2)

    monkeypatch.setattr(select, "select", type_when_asked)
    assert talk.go_on() == 0
    system = {"role": "system", "content": "Be brief."}
    said = [[message["content"] for message in messages] for messages in asked]
    assert said == [
        ["Be brief.", "one"],
        ["Be brief.", "one", "Paris", "two\nlines"],
        ["Be brief.", "three"],
    ]
    assert asked[0][0] == system
    assert "2 tokens, 10.0 tokens/s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (ChatAnswer("x", "", 31, True, 0.5, 2.0, 2.5, "stop"), "31 tokens, 15.0 tokens/s, first after "),
        (ChatAnswer("x", "", 1, True, 0.5, 0.0, 0.5, "length"), "1 token, first after "),
        (ChatAnswer("x", "", 2, False, 0.5, 1.0, 1.5, "cancelled"), "about 2 tokens, 1.0 tokens/s, first after "),
    ],
    ids=["whole", "one token", "cancelled"],
)
def test_the_pace_in_a_line(answer: ChatAnswer, line: str) -> None:
    assert pace(answer).startswith(line)
    assert pace(answer).endswith(
        {"length": "cut off at the token limit", "cancelled": "cancelled"}.get(answer.finish, "s")
    )


def test_a_pipe_gets_the_answer_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert conversation(monkeypatch, []).ask_once("Hello") == 0
    assert capsys.readouterr().out == "Par\x1b[2Jis\n"  # `main` makes both streams printable
