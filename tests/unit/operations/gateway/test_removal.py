"""What is left on a host that no longer is a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.gateway import removal
from tests.unit.local_host import LocalHost
from tests.unit.operations.gateway.test_placement import command, pieces_in


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that a gateway can leave; systemctl does nothing."""
    return pieces_in(tmp_path, monkeypatch, removal)


def test_no_key_remains(installed: Path) -> None:
    host: Any = LocalHost()
    removal.remove(host)
    assert [path.name for path in installed.iterdir()] == ["bin"]


def test_a_removal_that_was_interrupted_is_repeated(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(installed, "rm", '/bin/rm -rf -- "$3"; exit 1', monkeypatch)
    host: Any = LocalHost()
    with pytest.raises(HostFailed, match="removing the gateway"):
        removal.remove(host)
    assert (installed / "unit").exists()
