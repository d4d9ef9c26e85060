"""A command on many hosts: its lines as they come, its status, and an end by the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rigup import layout
from rigup.facts.apply_records import parse
from rigup.run.audit_log import kept_here
from rigup.run.hosts_run import HostsRun
from rigup.run.services import commands
from rigup.run.services.commands import Commands
from tests.hostile import SAFETY_S


@pytest.fixture
def met(local_run: Callable[..., HostsRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostsRun]:
    """A run over two hosts, which share one log; in commands HOST is the name of each."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(layout, "APPLY_RECORDS", str(tmp_path / "log/applies.jsonl"))
    run = local_run({name: lambda folder: None for name in ("a", "b")}, HostsRun)
    with run:
        run.connect(take_lease=False)
        yield run


def ran(run: HostsRun, *words: str, ended: Event | None = None) -> tuple[list[tuple[str, str, bool]], dict[str, Any]]:
    """The lines that were shown, in order, and what became of each host."""
    shown: list[tuple[str, str, bool]] = []
    work = Commands(run.context, words, False, lambda *line: shown.append(line))
    work.run(ended or Event())
    return sorted(shown), {name: work.as_json(result) for name, result in run.results.items()}


def test_one_word_is_a_line_for_the_shell(met: HostsRun) -> None:
    shown, found = ran(met, 'echo "on $HOST"; echo why >&2; [ "$HOST" = a ]')
    assert shown == [("a", "on a", False), ("a", "why", True), ("b", "on b", False), ("b", "why", True)]
    assert [(one["status"], one["stdout"], one["stderr"]) for one in found.values()] == [
        (0, "on a\n", "why\n"),
        (1, "on b\n", "why\n"),
    ]
    assert found["a"]["errors"] == []
    assert [error["message"] for error in found["b"]["errors"]] == ["b: the command exited with 1"]


def test_several_words_are_not(met: HostsRun) -> None:
    shown, _ = ran(met, "echo", "$HOST; *")
    assert [line for _, line, _ in shown] == ["$HOST; *"] * 2


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (("echo", "a b"), "exec: echo 'a b'"),
        (("echo one;\n  echo two",), "exec: echo one; echo two"),
        (("echo", "--api-key", "s3cret-of-mine"), "exec: echo --api-key '[redacted]'"),
        (("echo HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789",), "exec: echo HF_TOKEN=[redacted]"),
        (("true " + "x" * 5000,), "exec: true " + "x" * 995),
    ],
    ids=["words", "lines", "an option", "a variable", "long"],
)
def test_the_command_is_recorded_without_secrets_or_output(
    met: HostsRun, words: tuple[str, ...], recorded: str, tmp_path: Path
) -> None:
    met.record("exec")
    ran(met, *words)
    met.finisher.finish_run()
    for name in ("a", "b"):
        (record,) = kept_here(name)
        assert (record["verb"], record["changes"]) == ("exec", [recorded])
    on_hosts = parse((tmp_path / "log/applies.jsonl").read_text())
    assert [(record["verb"], record["changes"]) for record in on_hosts] == [("exec", [recorded])] * 2


def test_the_document_has_a_limit(met: HostsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.Said, "left", 4)
    monkeypatch.setattr(commands.Said.__init__, "__defaults__", (None, *commands.Said.__init__.__defaults__[1:-1], 4))
    shown, found = ran(met, "echo one; echo two")
    assert [line for host, line, _ in shown if host == "a"] == ["one", "two"]
    assert (found["a"]["stdout"], found["a"]["truncated"]) == ("one\n", True)


def test_it_ends_when_the_user_says_so(met: HostsRun) -> None:
    ended = Event()
    gevent.spawn_later(0.3, ended.set)
    with gevent.Timeout(SAFETY_S):
        _, found = ran(met, "echo begun; sleep 3600", ended=ended)
    assert found["a"]["status"] is None
