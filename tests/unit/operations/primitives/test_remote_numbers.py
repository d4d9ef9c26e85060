"""Numbers that a host says in the middle of an operation: a number, or that host's failure in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.multinode import peers
from rigup.operations.primitives import remote
from rigup.operations.primitives.remote import Output
from rigup.operations.weights import upload

BOX: Any = SimpleNamespace(name="box")
NONSENSE = ("", "many", "-1", "9" * 5000, "٣", "1e9")


def test_free_space_is_the_last_word_of_df(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "run", lambda *_, **__: Output(True, "  Avail\n123456\n", ""))
    assert remote.free_bytes(BOX, "/opt") == 123456


@pytest.mark.parametrize("said", NONSENSE)
def test_what_is_no_size_is_that_hosts_failure(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(remote, "run", lambda *_, **__: Output(True, said, ""))
    with pytest.raises(HostFailed, match=r"^box: df /opt: ") as caught:
        remote.free_bytes(BOX, "/opt")
    assert len(caught.value.message) < 200
    with pytest.raises(HostFailed, match=r"^box: sizes of the weights: "):
        upload._sizes(BOX, said, [{}])


@pytest.mark.parametrize("said", NONSENSE)
def test_a_count_of_restarts_that_cannot_be_is_none(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(remote, "run", lambda *_, **__: Output(True, f"ActiveState=active\nNRestarts={said}\n", ""))
    assert peers.trouble(BOX, "rigup-chat.service") == ""
