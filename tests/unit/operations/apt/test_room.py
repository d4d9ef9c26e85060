"""Packages that do not fit are refused before apt downloads them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.apt import room
from rigup.operations.primitives import remote

# As apt-cache, apt-get and df print them on Debian 12. The toolkit's sizes are made up.
TOOLKIT = """\
Installed-Size: 5000000
Installed-Size: 200
Size: 2000000000
Size: 40000
"""


def box() -> Any:
    """A host that knows nothing of its disks yet."""
    return SimpleNamespace(name="box", connector_data={})


def said(monkeypatch: pytest.MonkeyPatch, text: str, host: Any = None) -> str:
    """What stops the installation, "" if it may begin."""
    monkeypatch.setattr(remote, "run", lambda *_, **__: remote.Output(True, text, ""))
    try:
        room.require_room(host or box(), "cuda", ["install", "cuda-toolkit-13-0"])
    except HostFailed as error:
        return error.message
    return ""


def test_one_disk_needs_room_for_archives_and_files(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = f"{TOOLKIT}Free: 7120244801 /\nFree: 7120244801 /\n"
    assert said(monkeypatch, enough) == ""
    message = said(monkeypatch, enough.replace("7120244801", "7120244799"))
    assert message == "box: cuda: the packages need 7.1 GB in /usr, but only 7.1 GB are free"


def test_disks_apart_need_room_each(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = f"{TOOLKIT}Free: 2000040000 /var\nFree: 5120204800 /\n"
    assert said(monkeypatch, apart) == ""
    message = said(monkeypatch, apart.replace("2000040000", "1000000000"))
    assert message == "box: cuda: the packages need 2.0 GB in /var/cache/apt/archives, but only 1.0 GB are free"


def test_weights_that_are_still_to_come_leave_less_room(monkeypatch: pytest.MonkeyPatch) -> None:
    host, free = box(), f"{TOOLKIT}Free: 90000000000 /\nFree: 90000000000 /\n"
    room.leave_room(host, {"/": 2 * 7_120_244_800, "/srv": 0})
    assert said(monkeypatch, free, host) == ""
    assert said(monkeypatch, free, host) == "", "both are as large"
    beside = "box: cuda: the packages need 7.1 GB in /usr, but only 0 B are free beside the weights and builds"
    assert said(monkeypatch, free, host) == f"{beside} of this run"
    assert said(monkeypatch, free) == "", "nothing else is written to the disk"


@pytest.mark.parametrize("text", ["", "Free: 1 /\n", "Installed-Size: 9\n"])
def test_apt_itself_says_what_it_cannot_resolve(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert said(monkeypatch, text) == ""
