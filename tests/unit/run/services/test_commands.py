"""A command on many hosts: its lines as they come, its status, and an end by the user."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rigup.run.hosts_run import HostsRun
from rigup.run.services import commands
from rigup.run.services.commands import Commands


@pytest.fixture
def met(local_run: Callable[..., HostsRun]) -> Iterator[HostsRun]:
    """A run over two hosts; in commands HOST is the name of each."""
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
    assert [error["message"] for error in found["b"]["errors"]] == ["b: the command ended with 1"]


def test_several_words_are_not(met: HostsRun) -> None:
    shown, _ = ran(met, "echo", "$HOST; *")
    assert [line for _, line, _ in shown] == ["$HOST; *"] * 2


def test_the_document_has_a_limit(met: HostsRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands.Said, "left", 4)
    monkeypatch.setattr(commands.Said.__init__, "__defaults__", (None, *commands.Said.__init__.__defaults__[1:-1], 4))
    shown, found = ran(met, "echo one; echo two")
    assert [line for host, line, _ in shown if host == "a"] == ["one", "two"]
    assert (found["a"]["stdout"], found["a"]["truncated"]) == ("one\n", True)


def test_it_ends_when_the_user_says_so(met: HostsRun) -> None:
    ended = Event()
    gevent.spawn_later(0.3, ended.set)
    began = time.monotonic()
    _, found = ran(met, "echo begun; sleep 60", ended=ended)
    assert time.monotonic() - began < 30
    assert found["a"]["status"] is None
