"""`rigup logs`: what may be asked for, and how entries are printed."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.cli.output.console import Console
from rigup.cli.service.logs import Printer, since_text
from rigup.run.services.journal import Entry
from tests.command_line import CommandLine

TIMES = 'write 30s, 10m, 2h, 3d or "2026-11-23 10:00"'
AT = 1_700_000_000_123_456


@pytest.fixture
def rigup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    made = CommandLine(tmp_path)
    made.describe(["a", "b"])
    with monkeypatch.context() as here:
        here.setenv("TZ", "UTC")
        time.tzset()
        yield made
    time.tzset()


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["chta"], 'no service "chta" in the inventory', "choose from: chat"),
        (["gateway"], 'no service "gateway" in the inventory', "choose from: chat"),
        (["--since", "2w"], '--since: "2w" is not a time', TIMES),
        (["--since", "2026-13-01"], '--since: "2026-13-01" is not a time', TIMES),
        (["--lines", "-1"], "--lines: -1 ", "omit it "),
        (["--limit", "c"], '--limit: "c" ', "name a host, "),
    ],
    ids=range(6),
)  # fmt: skip
def test_bad_input(rigup: CommandLine, words: list[str], message: str, hint: str) -> None:
    done = rigup.call("logs", *words, "--json")
    error = done.json["error"]
    assert (done.code, error["message"].startswith(message), error["hint"].startswith(hint)) == (2, True, True), error


def test_times(rigup: CommandLine) -> None:
    assert since_text("90s") == "-90s"
    assert since_text("2h") == "-7200s"
    assert since_text("2023-11-14 22:13") == "@1699999980"
    assert since_text("2023-11-14") == "@1699920000"


def printed(entry: Entry, as_json: bool = False, **options: bool) -> str:
    file = io.StringIO()
    Printer(["gpu1", "gpu10"], Console(file=file, highlight=False, **options), as_json).show(entry)  # type: ignore[arg-type]
    return file.getvalue()


def test_an_entry_is_a_line_for_each_of_its_message_and_moves_nothing(rigup: CommandLine) -> None:
    entry = Entry(
        AT, "gpu1", "chat", 6, "10%\r100%\nworld\x1b]0;title\x07\x1b[2J \u202eback [bold]not markup[/] " + "x" * 200
    )
    assert printed(entry) == (
        "2023-11-14 22:13:20 gpu1  chat 10%\n"
        "2023-11-14 22:13:20 gpu1  chat 100%\n"
        f"2023-11-14 22:13:20 gpu1  chat world back [bold]not markup[/] {'x' * 200}\n"
    )  # fmt: skip


def test_hosts_have_colours_on_a_terminal_only(rigup: CommandLine) -> None:
    lines = [printed(Entry(AT, host, "chat", 6, "ready"), force_terminal=True) for host in ("gpu1", "gpu10")]
    assert "\x1b[36mgpu1 \x1b[0m" in lines[0]
    assert "\x1b[32mgpu10\x1b[0m" in lines[1]
    assert "\x1b" not in printed(Entry(AT, "gpu1", "chat", 6, "ready"))


def test_a_script_gets_a_document_a_line(rigup: CommandLine, capsys: pytest.CaptureFixture[str]) -> None:
    printed(Entry(AT, "gpu1", "chat", 4, "two\nlines"), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "time": "2023-11-14T22:13:20.123456+00:00",
        "host": "gpu1",
        "service": "chat",
        "priority": 4,
        "message": "two\nlines",
    }
