"""What differs between two releases, and which one a rollback takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.errors import Refused
from rigup.operations.kept_releases import KeptRelease, differences, read_kept
from rigup.operations.rollback import choose
from tests.unit.local_host import LocalHost

MANIFEST: dict[str, Any] = {
    "build": "llama.cpp-b1-abc",
    "checkpoint": {"repo": "a/b", "quant": "Q4", "revision": "0123456789abcdef"},
    "command": ["bin/llama-server", "--ctx-size", "8192", "--jinja"],
    "environment": {"A": "1"},
}


def kept(number: int, current: bool = False, answered: bool = True, **manifest: Any) -> KeptRelease:
    return KeptRelease("chat", number, 1000 + number, current, answered, {**MANIFEST, **manifest})


def test_every_kind_of_difference_is_said() -> None:
    new = kept(
        2,
        build="vllm-1-def",
        checkpoint={"repo": "a/b", "quant": "Q8", "revision": "fedcba98765432"},
        command=["bin/vllm", "--ctx-size=4096", "--metrics"],
        environment={"B": "2"},
        gpus=[[0, "GPU-1"]],
    )
    assert differences(kept(1), new) == (
        "build llama.cpp-b1-abc -> vllm-1-def",
        "checkpoint a/b Q4 0123456789ab -> a/b Q8 fedcba987654",
        "program bin/llama-server -> bin/vllm",
        "--ctx-size 8192 -> 4096",
        "- --jinja",
        "+ --metrics",
        "- A 1",
        "+ B 2",
        "gpus changed",
    )
    assert differences(kept(1), kept(2)) == ("the unit around it",)


def test_the_one_before_that_answered_is_the_one_to_go_back_to() -> None:
    releases = (kept(1), kept(2, answered=False), kept(3, current=True), kept(4))
    assert choose("box", releases, None) == (releases[2], releases[0])
    assert choose("box", releases, 4) == (releases[2], releases[3])
    unpointed = tuple(replace(release, current=False) for release in releases)
    assert choose("box", unpointed, None) == (None, releases[3])


@pytest.mark.parametrize(
    ("releases", "to", "message"),
    [
        ((kept(1, current=True),), None, "box: chat: there is no earlier release that has answered"),
        ((kept(1, answered=False), kept(2, current=True)), 1, "box: chat: release 1 has never answered"),
        ((kept(2, current=True),), 2, "box: chat: release 2 is the current one"),
        ((kept(2, current=True),), 7, "box: chat: there is no release 7"),
    ],
    ids=["none", "never answered", "current", "unknown"],
)
def test_what_cannot_be_gone_back_to_is_refused(
    releases: tuple[KeptRelease, ...], to: int | None, message: str
) -> None:
    with pytest.raises(Refused) as caught:
        choose("box", releases, to)
    assert caught.value.message == message


def test_they_are_read_from_the_host_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CONFIGURATION", str(tmp_path))
    for number in (2, 10, 9):
        folder = tmp_path / f"services/chat/releases/{number}"
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(json.dumps({**MANIFEST, "note": "two  spaces"}))
    (tmp_path / "services/chat/releases/9/answered").touch()
    (tmp_path / "services/chat/current").symlink_to("releases/10")
    (tmp_path / "services/bare").mkdir()
    found = read_kept(LocalHost())
    assert list(found) == ["chat"]
    assert [(release.number, release.current, release.answered) for release in found["chat"]] == [
        (2, False, False),
        (9, False, True),
        (10, True, False),
    ]
    assert found["chat"][0].manifest["note"] == "two  spaces"
