"""A machine that cannot run a lab is told everything it lacks, in one message."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigup.errors import MissingTool
from rigup.lab import prerequisites


def lacking(monkeypatch: pytest.MonkeyPatch, *tools: str, user: int = 0, keyring: bool = True) -> MissingTool:
    """What `check` says on a Linux machine without `tools`, run by `user`."""
    found = lambda tool, path=None: None if tool in tools else f"/usr/bin/{tool}"  # noqa: E731
    monkeypatch.setattr(shutil, "which", found)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(prerequisites, "KEYRING", Path("/dev/null" if keyring else "/nonexistent/keyring.gpg"))
    with pytest.raises(MissingTool) as raised:
        prerequisites.check()
    assert raised.value.exit_code == 2
    return raised.value


def test_every_missing_tool_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    error = lacking(monkeypatch, "mmdebstrap", "systemd-nspawn", "ip", "tc", user=1000)
    assert error.message == "the lab requires mmdebstrap, systemd-nspawn, ip, tc and root"
    assert error.hint == "apt-get install --no-install-recommends iproute2 mmdebstrap systemd-container"


def test_debians_keys_are_needed_on_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    error = lacking(monkeypatch, keyring=False)
    assert error.message == "the lab requires /nonexistent/keyring.gpg"
    assert error.hint == "apt-get install --no-install-recommends debian-archive-keyring"


def test_root_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    error = lacking(monkeypatch, user=1000)
    assert error.message == "the lab requires root for network namespaces and mounts"


def test_another_system_than_linux_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "not darwin" in lacking(monkeypatch).message


def test_an_old_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "hierarchy", lambda: None)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release="5.10.0-30-amd64"))
    assert lacking(monkeypatch).message == "the lab requires Linux 5.19 or later, not 5.10.0-30-amd64"
