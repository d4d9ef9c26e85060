"""Packages that do not fit are refused before apt downloads them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rigup.errors import HostFailed
from rigup.operations.apt import room
from rigup.operations.primitives import remote

# As apt-cache, find and df print them on Debian 12. The toolkit's sizes are made up.
TOOLKIT = """\
Installed-Size: 5000000
Size: 3000000000
Installed-Size: 200
Size: 40000
There: 1000000000
"""


def said(monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """What stops the installation, "" if it may begin."""
    monkeypatch.setattr(remote, "run", lambda *_, **__: remote.Output(True, text, ""))
    try:
        room.require_room(SimpleNamespace(name="box"), "cuda", ["install", "cuda-toolkit-13-0"])  # type: ignore[arg-type]
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


@pytest.mark.parametrize("text", ["", "Free: 1 /\n", "Installed-Size: 9\n"])
def test_apt_itself_says_what_it_cannot_resolve(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    assert said(monkeypatch, text) == ""
