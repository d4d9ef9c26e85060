"""Numbers that a host says in the middle of an operation: a number, or that host's failure in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations.multinode import peers
from rigup.operations.primitives import remote
from rigup.operations.primitives.remote import Output
from rigup.operations.service import moe_configs
from rigup.operations.weights import checkpoint, upload

BOX: Any = SimpleNamespace(name="box")
NONSENSE = ("", "many", "-1", "9" * 5000, "٣", "1e9")


def test_free_space_is_the_last_word_of_df(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "run", lambda *_, **__: Output(True, "  Avail\n123456\n", ""))
    assert remote.free_bytes(BOX, "/opt") == 123456


@pytest.mark.parametrize("said", NONSENSE)
def test_what_is_not_a_size_is_that_hosts_failure(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
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


@pytest.mark.parametrize("said", [f"{size}\t{layout.MOE_CONFIGS}/a" for size in NONSENSE] + ["7", "7\t/etc", "\t"])
def test_folders_of_kernels_are_below_theirs_and_have_a_size(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(remote, "run", lambda *_, **__: Output(True, f"5\t{layout.MOE_CONFIGS}/b\n", ""))
    assert moe_configs.unnamed_folders(BOX, ()) == {f"{layout.MOE_CONFIGS}/b": 5}
    monkeypatch.setattr(remote, "run", lambda *_, **__: Output(True, said, ""))
    with pytest.raises(HostFailed, match=r"^box: ") as caught:
        moe_configs.unnamed_folders(BOX, ())
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "said", ["", "[1]", "{}", '{"missing": [1], "bad": []}', '{"missing": 5, "bad": {}}', "[" * 5000]
)
def test_a_check_of_weights_that_says_something_else_is_shown_as_it_is(said: str) -> None:
    assert checkpoint._why(said) == said
