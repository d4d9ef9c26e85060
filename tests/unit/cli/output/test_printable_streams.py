"""Text from outside on its way to a terminal, a pipe, a page: nothing of it drives a terminal, by whatever path."""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import json
import os
import pty
import sys
from pathlib import Path

import pytest
from hypothesis import given
from rich.table import Table

from rigup.cli import log, main
from rigup.cli.diff import show_drift
from rigup.cli.output import progress as live
from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.printable_streams import printable_streams
from rigup.cli.page.content import PageOrigin
from rigup.cli.page.report_page import report_page
from rigup.cli.page.writing import write_page
from rigup.cli.releases import show as show_releases
from rigup.cli.status import table
from rigup.connection.connect_errors import connect_error
from rigup.errors import HostFailed
from rigup.operations.primitives.progress import Progress
from rigup.operations.service.answer import Answer
from rigup.operations.service.history import RetainedRelease
from rigup.printable import one_line, printable
from rigup.report.redaction import Redactor
from rigup.report.text import report_text
from rigup.run.drift import Drift
from rigup.run.result import Change, HostResult
from tests.hostile import ESCAPES, HOSTILE, bounded, is_harmless, texts

COMMAND_LINE = Path(main.__file__).parent


@pytest.mark.parametrize("text", ESCAPES)
def test_what_drives_a_terminal_is_taken_out(text: str) -> None:
    assert is_harmless(printable(f"a{text}b"))


@given(texts)
def test_any_text_becomes_harmless_and_stays_so(text: str) -> None:
    once = printable(text)
    assert is_harmless(once) and printable(once) == once
    once.encode()


def test_what_people_write_stays() -> None:
    for text in ("a\tb\nc", "Grüße, 日本語, ไทย", "עברית", "👩‍👩‍👧 می‌خواهم", "[bold]x[/] 100 %"):
        assert printable(text) == text
    assert printable("\x1b[1;31mred\x1b[0m") == "red"
    assert one_line("a\r\nb\x1b[2K\tc") == "a b c"


def test_it_takes_time_linear_in_the_length() -> None:
    for piece in ("\x1b[", "\x1b]", "\x1b]x\x1b", "\x1bP", "\x1b ", "\x9b", "\x1b[0", "\x1b[;"):
        with bounded():
            printable(piece * 200_000)
            printable("\x1b]" + piece * 200_000)


@pytest.mark.parametrize("verb", main.VERBS)
def test_no_verb_has_a_path_that_lets_an_escape_through(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: argparse.Namespace) -> int:
        print(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        sys.stdout.write(HOSTILE)
        json.dump({HOSTILE: [HOSTILE]}, sys.stdout, ensure_ascii=False)
        for console in (Console(), Console(stderr=True)):
            console.print(HOSTILE)
        live.PlainProgress().show(Progress("gpu1", "log", text=HOSTILE))
        raise HostFailed(HOSTILE, HOSTILE)

    module = importlib.import_module(f"rigup.cli.{main.MODULES.get(verb, verb)}")
    monkeypatch.setattr(module, "add_arguments", lambda parser: parser.add_argument("--json", action="store_true"))
    monkeypatch.setattr(module, "run", run)
    for words in ([verb], [verb, "--json"]):
        assert main.main(words) == 1
        said = capsys.readouterr()
        assert is_harmless(said.out) and is_harmless(said.err)
        assert said.out.count("before") >= 4 and "hint: before" in said.err


def test_a_usage_error_and_a_traceback_are_printable_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["status", f"--{HOSTILE}".replace(" ", "")]) == 2
    assert main.main(["status", "--\u202eevil\u202c"]) == 2
    with printable_streams():
        sys.excepthook(ValueError, ValueError(HOSTILE), None)
    said = capsys.readouterr()
    assert "before" in said.err and is_harmless(said.err)


def test_only_one_module_makes_consoles_and_none_writes_past_the_streams() -> None:
    """A console of rich's own would lose its colours, and a write to a descriptor would pass everything by."""
    wrong = []
    for path in COMMAND_LINE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        typing = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        makes = any(isinstance(call, ast.Name) and call.id == "Console" for call in calls)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "rich.console" and node not in typing:
                wrong += [f"{path.name}:{node.lineno}" for name in node.names if makes and name.name == "Console"]
            if isinstance(node, ast.Attribute) and node.attr in ("__stdout__", "__stderr__"):
                wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []


def result() -> HostResult:
    """A host whose every word is hostile."""
    errors = [connect_error("gpu1", f"No existing session{HOSTILE}"), connect_error("gpu1", HOSTILE)]
    return HostResult(
        "gpu1", "failed", [Change("service", HOSTILE)], list(errors), [Answer("gpu1", "chat", HOSTILE, 5, 1.0, 5.0)]
    )


def shown(console: Console) -> None:
    """Everything that hosts said, by each function that shows it."""
    summary.show_changes([result()], console)
    summary.show_answers([result()], HOSTILE, console)
    summary.show_results([result()], console)
    show_drift({HOSTILE: (Drift("config", HOSTILE, HOSTILE, hint=HOSTILE),)}, console)
    manifest = {"build": HOSTILE, "command": [HOSTILE], "environment": {"A": HOSTILE}}
    kept = (RetainedRelease("chat", 1, 0, False, True, {}), RetainedRelease("chat", 2, 0, True, True, manifest))
    show_releases("gpu1", {"chat": kept}, console)
    row = dict.fromkeys(("host", "service", "health", "drift", "build", "unit", "driver", "release"), HOSTILE)
    console.print(table([row | {"checkpoint": {"repo": HOSTILE, "quant": HOSTILE}}]))
    record = dict.fromkeys(("when", "verb", "who", "result", "lock", "commit", "rigup"), HOSTILE)
    lists = {"seconds": 1.0, "services": {HOSTILE: HOSTILE}, "changes": [HOSTILE], "errors": [HOSTILE]}
    log.show(record | lists, console)
    cells = Table()
    cells.add_column(HOSTILE)
    console.print(cells)


@pytest.mark.parametrize("terminal", [True, False])
def test_what_hosts_said_is_shown_printable(terminal: bool) -> None:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=100, color_system="truecolor" if terminal else None
    )
    shown(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("before") > 15 and is_harmless(text, colours=terminal)


def test_bars_in_a_terminal_show_it_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a real terminal, with what is printed while the bars are up, and with colours of our own."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with printable_streams(), live.RichProgress() as bars:
            bars.show(Progress("gpu1", "log", text=HOSTILE))
            bars.show(Progress(HOSTILE, "weights", 1, 2, "bytes", text="w"))
            print(HOSTILE, file=sys.stderr)
        os.set_blocking(ours, False)
        said = os.read(ours, 1 << 20).decode()
    os.close(ours)
    assert "before" in said and "\x1b[" in said
    assert "\x1b]" not in said and "owned\x07" not in said and "evil.example" not in said
    assert is_harmless(said, colours=True)


def test_pages_and_reports_are_printable(tmp_path: Path) -> None:
    sections = {"journals": f"--- unit\n{HOSTILE}", "errors": [{"message": HOSTILE, "hint": HOSTILE}], "x": [HOSTILE]}
    origin = PageOrigin("fleet", "2026-11-22 00:00:00 UTC", "1", "", "")
    pages = (report_page(HOSTILE, origin, sections), report_text(HOSTILE, "now", sections, Redactor([])))
    for page in pages:
        write_page(str(tmp_path / "page"), page, "--output")
        assert is_harmless((tmp_path / "page").read_text())


def test_a_colour_within_a_secret_does_not_hide_it() -> None:
    assert "verysecret" not in Redactor(["verysecret"]).text("key very\x1b[31msecret")
