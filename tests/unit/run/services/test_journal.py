"""The journal of several hosts: parsed without trust, merged by time, read on while it grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rigup.run.hosts_run import HostsRun
from rigup.run.services.journal import Entry, Journal, JournalQuery, read_entry, words_for

AT = 1_700_000_000_000_000


def line(at: int, message: Any, unit: str = "rigup-chat.service", **more: str) -> str:
    """As journalctl prints an entry, `at` seconds after AT."""
    return json.dumps({"__REALTIME_TIMESTAMP": str(AT + at * 10**6), "_SYSTEMD_UNIT": unit, "MESSAGE": message, **more})


@pytest.mark.parametrize(
    ("text", "service", "priority", "message"),
    [
        (line(0, "ready"), "chat", 6, "ready"),
        (line(0, "Started", "init.scope", UNIT="rigup-chat.service", PRIORITY="4"), "chat", 4, "Started"),
        (line(0, [104, 105, 255]), "chat", 6, "hi\N{REPLACEMENT CHARACTER}"),
        (line(0, None), "chat", 6, "(too long for the journal's JSON)"),
    ],
    ids=["of the service", "of systemd about it", "not UTF-8", "too long"],
)
def test_an_entry(text: str, service: str, priority: int, message: str) -> None:
    assert read_entry("box", text) == Entry(AT, "box", service, priority, message)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-- Boot --",
        "[]",
        "7",
        "[" * 100_000,
        line(0, "x", "ssh.service"),
        line(0, [1000]),
        line(0, ["a"]),
        line(10**15, "x"),
        line(0, "x", PRIORITY="99"),
        line(0, "x", PRIORITY="loud"),
        '{"_SYSTEMD_UNIT": "rigup-chat.service", "MESSAGE": "x"}',
    ],
    ids=range(12),
)
def test_what_is_not_an_entry_is_left_out(text: str) -> None:
    assert read_entry("box", text) is None


def test_the_command() -> None:
    assert words_for(["rigup-chat.service"], JournalQuery(lines=5, since="-60s", follow=True)) == (
        *("journalctl", "--no-pager", "--quiet", "--all", "--output=json"),
        "--output-fields=UNIT,OBJECT_SYSTEMD_UNIT,_SYSTEMD_UNIT,MESSAGE,PRIORITY",
        *("--lines=5", "--since=-60s", "--follow", "--unit=rigup-chat.service"),
    )


@pytest.fixture
def fleet(
    local_run: Callable[..., HostsRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[dict[str, str]], HostsRun]:
    """Makes runs over hosts with a service and a journalctl each: `fleet({"box": "sh of its journalctl"})`."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/journalctl"

    def make(journals: dict[str, str]) -> HostsRun:
        cases = "".join(f"{name}) {text} ;;\n" for name, text in journals.items())
        program.write_text(f'#!/bin/sh\ncase "$HOST" in\n{cases}esac\n')
        program.chmod(0o755)
        run = local_run({name: lambda folder: None for name in journals}, HostsRun)
        with run:
            run.connect(take_lease=False)
        for handshake in run.context.handshakes.values():
            handshake.probe.current["chat"] = "1"
        return run

    return make


def printing(*lines: str) -> str:
    return "; ".join(f"printf '%s\\n' '{each}'" for each in lines)


def test_hosts_are_merged_by_time(fleet: Callable[[dict[str, str]], HostsRun]) -> None:
    run = fleet({"a": printing(line(1, "one"), "noise", line(3, "three")), "b": printing(line(2, "two"))})
    with Journal(run.context, JournalQuery(lines=10)) as journal:
        assert [(entry.host, entry.message) for entry in journal.merged()] == [
            ("a", "one"),
            ("b", "two"),
            ("a", "three"),
        ]
    assert [result.state for result in run.results.values()] == ["pending", "pending"]


def test_a_host_whose_journal_cannot_be_read_fails_and_others_are_printed(
    fleet: Callable[[dict[str, str]], HostsRun],
) -> None:
    run = fleet({"a": "echo 'No journal files were found.' >&2; exit 1", "b": printing(line(2, "two"))})
    with Journal(run.context, JournalQuery()) as journal:
        assert [entry.message for entry in journal.merged()] == ["two"]
    (error,) = run.results["a"].errors
    assert (run.results["a"].state, error.message) == ("failed", "a: journalctl: No journal files were found.")


def test_a_host_without_the_service_is_not_asked(fleet: Callable[[dict[str, str]], HostsRun]) -> None:
    run = fleet({"a": printing(line(1, "one"))})
    with Journal(run.context, JournalQuery(("other",))) as journal:
        assert list(journal.merged()) == []


def test_new_entries_come_in_order_until_it_is_ended(
    fleet: Callable[[dict[str, str]], HostsRun], tmp_path: Path
) -> None:
    more = tmp_path / "more"
    late = f"{printing(line(1, 'first'))}; until [ -e {more} ]; do sleep 0.05; done; {printing(line(5, 'fifth'))}"
    run = fleet({"a": f"{late}; sleep 60", "b": f"{printing(line(2, 'second'))}; sleep 60"})
    ended, found = Event(), []
    with gevent.Timeout(30), Journal(run.context, JournalQuery(follow=True)) as journal:
        for entry in journal.followed(ended):
            found.append(entry.message)
            if entry.message == "second":
                more.touch()
            if entry.message == "fifth":
                ended.set()
    assert found == ["first", "second", "fifth"]


def test_it_ends_when_every_host_has_ended(fleet: Callable[[dict[str, str]], HostsRun]) -> None:
    run = fleet({"a": printing(line(1, "one"))})
    with gevent.Timeout(30), Journal(run.context, JournalQuery(follow=True)) as journal:
        assert [entry.message for entry in journal.followed(Event())] == ["one"]
