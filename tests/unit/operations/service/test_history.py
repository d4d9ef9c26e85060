"""What differs between two releases, and which one a rollback takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.errors import Refused
from rigup.operations.multinode.releases import _state_of
from rigup.operations.service import history as kept_releases
from rigup.operations.service.history import RetainedRelease, differences, read_kept, with_replaced
from rigup.operations.service.releases import mark_healthy, stage
from rigup.operations.service.rollback import choose
from rigup.systemd.release import ServiceRelease
from tests.unit.local_host import LocalHost

MANIFEST: dict[str, Any] = {
    "build": "llama.cpp-b1-abc",
    "checkpoint": {"repo": "a/b", "quant": "Q4", "revision": "0123456789abcdef"},
    "command": ["bin/llama-server", "--ctx-size", "8192", "--jinja"],
    "environment": {"A": "1"},
}


def kept(number: int, current: bool = False, answered: bool = True, **manifest: Any) -> RetainedRelease:
    return RetainedRelease("chat", number, 1000 + number, current, answered, {**MANIFEST, **manifest})


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
    assert differences(kept(1), kept(2)) == ("the unit file",)


def test_a_release_after_a_rollback_follows_the_one_that_ran_before_it() -> None:
    # release 2 was rolled back to 1, then an apply made 3
    first, second, third = kept(1), replace(kept(2), before=1), replace(kept(3, current=True), before=1)
    assert with_replaced((first, second, third)) == [(None, first), (first, second), (first, third)]
    assert with_replaced((first, kept(2), kept(3))) == [(None, first), (first, kept(2)), (kept(2), kept(3))]
    # the one that ran before it is no longer retained: nothing is compared with it
    assert with_replaced((second, replace(kept(4), before=3)))[1] == (None, replace(kept(4), before=3))


def test_the_one_before_that_answered_is_the_one_to_go_back_to() -> None:
    releases = (kept(1), kept(2, answered=False), kept(3, current=True), kept(4))
    assert choose("box", releases, None) == (releases[2], releases[0])
    assert choose("box", releases, 4) == (releases[2], releases[3])
    unpointed = tuple(replace(release, current=False) for release in releases)
    assert choose("box", unpointed, None) == (None, releases[3])


@pytest.mark.parametrize(
    ("releases", "to", "message"),
    [
        ((kept(1, current=True),), None, "box: chat: no earlier release has answered"),
        ((kept(1, answered=False), kept(2, current=True)), 1, "box: chat: release 1 has never answered"),
        ((kept(2, current=True),), 2, "box: chat: release 2 is already current"),
        ((kept(2, current=True),), 7, "box: chat: release 7 does not exist"),
    ],
    ids=["none", "never answered", "current", "unknown"],
)
def test_what_cannot_be_gone_back_to_is_refused(
    releases: tuple[RetainedRelease, ...], to: int | None, message: str
) -> None:
    with pytest.raises(Refused) as caught:
        choose("box", releases, to)
    assert caught.value.message == message


def test_they_are_read_from_the_host_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CONFIGURATION", str(tmp_path))
    monkeypatch.setattr(kept_releases, "LIST", kept_releases.LIST.replace(layout.BUILDS, str(tmp_path / "builds")))
    (tmp_path / "builds/llama.cpp-b1-abc").mkdir(parents=True)
    manifest = {"name": "llama.cpp-b1-abc", "build": {}, "built_by": "gpu1.lan"}
    (tmp_path / "builds/llama.cpp-b1-abc/manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
    for number in (2, 10, 9):
        folder = tmp_path / f"services/chat/releases/{number}"
        folder.mkdir(parents=True)
        (folder / "release.json").write_text(json.dumps({**MANIFEST, "note": "two  spaces"}))
    (tmp_path / "services/chat/releases/2/release.json").write_text(
        json.dumps({"build": "gone", "note": "two  spaces"})
    )
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
    assert [release.built_by for release in found["chat"]] == [None, "gpu1.lan", "gpu1.lan"]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a service that has no release yet."""
    monkeypatch.setattr(layout, "CONFIGURATION", str(tmp_path))
    folder = tmp_path / "services/chat"
    (folder / "releases").mkdir(parents=True)
    return folder


def point_at(service: Path, number: str) -> None:
    (service / "current").unlink(missing_ok=True)
    (service / "current").symlink_to(f"releases/{number}")


def made(service: Path, answers: bool = True) -> tuple[str, str | None]:
    """Stages a release and switches to it, as an apply does. Its number, and the one that it would go back to."""
    number, previous = stage(LocalHost(), ServiceRelease("chat", "[Service]", {}), None)
    point_at(service, number)
    if answers:
        mark_healthy(LocalHost(), "chat", number)
    return number, previous


def back_to(service: Path, number: str) -> None:
    point_at(service, number)
    mark_healthy(LocalHost(), "chat", number)


def kept_numbers(service: Path) -> list[int]:
    return sorted(int(folder.name) for folder in (service / "releases").iterdir())


def test_what_was_gone_back_to_stays_and_is_gone_back_to_again(service: Path) -> None:
    assert [made(service) for _ in range(3)] == [("1", None), ("2", "1"), ("3", "2")]
    back_to(service, "1")
    assert kept_numbers(service) == [1, 2, 3]
    assert made(service) == ("4", "1")
    assert kept_numbers(service) == [1, 3, 4]
    releases = read_kept(LocalHost())["chat"]
    assert [(release.number, release.before) for release in releases] == [(1, None), (3, 2), (4, 1)]
    assert choose("box", releases, None)[1].number == 1
    assert made(service) == ("5", "4")
    assert kept_numbers(service) == [1, 4, 5]
    back_to(service, "4")
    assert choose("box", read_kept(LocalHost())["chat"], None)[1].number == 1
    back_to(service, "1")
    with pytest.raises(Refused):
        choose("box", read_kept(LocalHost())["chat"], None)


def test_after_one_that_was_cut_short_the_good_one_before_it_comes_back(service: Path) -> None:
    for _ in range(3):
        made(service)
    back_to(service, "1")
    assert made(service, answers=False) == ("4", "1")
    assert stage(LocalHost(), ServiceRelease("chat", "[Service]", {}), "4") == ("4", "1")
    assert list(_state_of(LocalHost(), "chat", "5").earlier) == ["2", "3", "1"]
    assert made(service) == ("5", "1")
    assert kept_numbers(service) == [1, 3, 5]


def test_without_a_note_the_last_three_stay_and_numbers_count(service: Path) -> None:
    for number in ("1", "2", "3", "4"):
        folder = service / "releases" / number
        folder.mkdir()
        (folder / "release.json").write_text("{}")
        (folder / "answered").touch()
    (service / "releases/5").mkdir()
    back_to(service, "4")
    assert kept_numbers(service) == [2, 3, 4]
    assert choose("box", read_kept(LocalHost())["chat"], None)[1].number == 3


def test_a_folder_whose_name_is_not_a_number_is_left_alone(service: Path) -> None:
    for name in ("1", "2.bak", "old"):
        (service / "releases" / name).mkdir()
        (service / "releases" / name / "release.json").write_text("{}")
    (service / "releases/1/answered").touch()
    number, _ = stage(LocalHost(), ServiceRelease("chat", "[Service]", {}), None)
    assert number == "2"
    back_to(service, number)
    mark_healthy(LocalHost(), "chat", number)
    assert sorted(path.name for path in (service / "releases").iterdir()) == ["1", "2", "2.bak", "old"]
    assert [release.number for release in read_kept(LocalHost())["chat"]] == [1, 2]
