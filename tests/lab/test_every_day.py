"""What a user does once a service runs: read its journal."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.lab.fleet import Fleet

pytestmark = pytest.mark.lab


@pytest.fixture
def serving(fleet: Fleet) -> Iterator[Fleet]:
    """A fleet of one host whose service answers."""
    fleet.host.tell("rm -rf /run/rigup-test")
    fleet.apply()
    assert fleet.host.answers()
    yield fleet
    fleet.host.tell("rm -rf /run/rigup-test")


def test_the_journal_is_printed_and_followed(serving: Fleet) -> None:
    printed = serving.rigup("logs", "--json", "--lines", "1000").stdout.read_text()
    entries = [json.loads(line) for line in printed.splitlines()]
    assert {(entry["host"], entry["service"]) for entry in entries} == {(serving.host.name, "chat")}
    assert any("listening" in entry["message"] for entry in entries)
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)

    following = serving.start("logs", "chat", "-f", "--lines", "0")
    serving.host.tell("systemctl restart rigup-chat.service")
    following.wait_to_say("listening")
    following.interrupt()
    assert following.wait() == 0, following.text
    assert "\x1b" not in following.text
