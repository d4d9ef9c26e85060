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
from rigup.run.services import journal
from rigup.run.services.journal import Entry, Journal, JournalQuery, read_entry, words_for
from tests.hostile import ends

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
        '{"_SYSTEMD_UNIT": "rigup-chat.service", "MESSAGE": "x", "__REALTIME_TIMESTAMP": 1e999}',
        line(0, "x", "rigup-\x1b[2J.service"),
        line(0, "x", f"rigup-{'a' * 1000}.service"),
    ],
    ids=range(15),
)
def test_what_is_not_an_entry_is_left_out(text: str) -> None:
    assert read_entry("box", text) is None


@pytest.mark.parametrize("message", ["x" * 10**6, [120] * 500_000, "x\n" * 400_000], ids=["text", "bytes", "lines"])
def test_a_message_is_cut(message: Any) -> None:
    entry = read_entry("box", line(0, message))
    assert entry is not None and len(entry.message) <= journal.LONGEST_MESSAGE
    assert entry.message.count("\n") < journal.MOST_MESSAGE_LINES and entry.message.startswith("x")


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
    with Journal(run.context, JournalQuery(lines=10)) as printed:
        assert [(entry.host, entry.message) for entry in printed.merged()] == [
            ("a", "one"),
            ("b", "two"),
            ("a", "three"),
        ]
    assert [result.state for result in run.results.values()] == ["pending", "pending"]


def test_a_host_whose_journal_cannot_be_read_fails_and_others_are_printed(
    fleet: Callable[[dict[str, str]], HostsRun],
) -> None:
    run = fleet({"a": "echo 'No journal files were found.' >&2; exit 1", "b": printing(line(2, "two"))})
    with Journal(run.context, JournalQuery()) as printed:
        assert [entry.message for entry in printed.merged()] == ["two"]
    (error,) = run.results["a"].errors
    assert (run.results["a"].state, error.message) == ("failed", "a: journalctl: No journal files were found.")


def test_a_host_without_the_service_is_not_asked(fleet: Callable[[dict[str, str]], HostsRun]) -> None:
    run = fleet({"a": printing(line(1, "one"))})
    with Journal(run.context, JournalQuery(("other",))) as printed:
        assert list(printed.merged()) == []


def test_new_entries_come_in_order_until_it_is_ended(
    fleet: Callable[[dict[str, str]], HostsRun], tmp_path: Path
) -> None:
    more = tmp_path / "more"
    late = f"{printing(line(1, 'first'))}; until [ -e {more} ]; do sleep 0.05; done; {printing(line(5, 'fifth'))}"
    run = fleet({"a": f"{late}; sleep 60", "b": f"{printing(line(2, 'second'))}; sleep 60"})
    ended, found = Event(), []
    with gevent.Timeout(30), Journal(run.context, JournalQuery(follow=True)) as printed:
        for entry in printed.followed(ended):
            found.append(entry.message)
            if entry.message == "second":
                more.touch()
            if entry.message == "fifth":
                ended.set()
    assert found == ["first", "second", "fifth"]


def test_it_ends_when_every_host_has_ended(fleet: Callable[[dict[str, str]], HostsRun]) -> None:
    run = fleet({"a": printing(line(1, "one"))})
    with gevent.Timeout(30), Journal(run.context, JournalQuery(follow=True)) as printed:
        assert [entry.message for entry in printed.followed(Event())] == ["one"]


def messages(run: HostsRun, query: JournalQuery) -> list[tuple[str, str]]:
    with ends(50), Journal(run.context, query) as printed:
        return [(entry.host, entry.message) for entry in printed.merged()]


def failure(run: HostsRun, name: str) -> str:
    (error,) = run.results[name].errors
    assert run.results[name].state == "failed" and error.hint
    return error.message


FLOOD = f"yes '{line(1, 'x' * 10_000)}'"


def test_hosts_that_hang_are_waited_for_together_and_the_others_are_printed(
    fleet: Callable[[dict[str, str]], HostsRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PATIENCE_SECONDS", 10.0)
    hanging = {f"a{number}": "sleep 1000" for number in range(12)}  # one after the other they take 120 s
    run = fleet({**hanging, "z": printing(line(2, "two"))})
    assert messages(run, JournalQuery(lines=5)) == [("z", "two")]
    assert failure(run, "a0") == "a0: journalctl prints nothing within 10 s"
    assert {run.results[name].state for name in hanging} == {"failed"} and run.results["z"].state == "pending"


def test_a_host_that_prints_only_noise_or_hardly_anything_is_not_waited_for(
    fleet: Callable[[dict[str, str]], HostsRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PATIENCE_SECONDS", 3.0)
    slow = f"while :; do printf '%s\\n' '{line(1, 'slow')}'; sleep 1.2; done"
    run = fleet({"a": "yes noise", "b": slow, "c": printing(line(2, "two"))})
    found = messages(run, JournalQuery(lines=1000))
    assert found[-1] == ("c", "two") and 0 < len(found) - 1 < 100
    assert failure(run, "a") == "a: journalctl prints nothing within 3 s"
    assert failure(run, "b") == "b: journalctl prints entries too slowly"


def test_no_host_prints_more_lines_than_were_asked_for(fleet: Callable[[dict[str, str]], HostsRun]) -> None:
    run = fleet({"a": FLOOD, "b": printing(line(2, "two"))})
    assert [host for host, _ in messages(run, JournalQuery(lines=3))] == ["a", "a", "a", "b"]
    assert messages(fleet({"a": FLOOD}), JournalQuery(lines=0)) == []
    assert run.results["a"].state == "pending"


def test_a_host_that_prints_without_end_fails(
    fleet: Callable[[dict[str, str]], HostsRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_PRINTED", 1 << 20)
    run = fleet({"a": FLOOD, "b": printing(line(2, "two"))})
    found = messages(run, JournalQuery(since="-60s"))
    assert found[-1] == ("b", "two") and len(found) < 110
    assert failure(run, "a") == "a: journalctl prints more than 1 MiB"


@pytest.mark.parametrize("follow", [False, True], ids=["merged", "followed"])
def test_what_is_read_ahead_is_bounded_in_bytes(
    follow: bool, fleet: Callable[[dict[str, str]], HostsRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "AHEAD", 1 << 20)
    held: list[int] = []

    class Counting(journal._Feed):
        def put(self, entry: Entry) -> None:
            super().put(entry)
            held.append(self._held)

    monkeypatch.setattr(journal, "_Feed", Counting)
    quiet = f"sleep 1; {printing(line(2, 'two'))}"
    run = fleet({"a": FLOOD, "b": quiet})
    with ends(60), Journal(run.context, JournalQuery(lines=500, follow=follow)) as printed:
        seen = 0
        for entry in printed.followed(Event()) if follow else printed.merged():
            seen += 1
            if seen == 300 or entry.host == "b":
                break
    assert seen and max(held) < 2**19 + 2**15, "each of two hosts has a half"
