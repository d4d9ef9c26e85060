"""What is left on a host that no longer is a gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.gateway.paths import UNIT_FILE
from rigup.operations.gateway.removal import GATEWAY
from rigup.operations.primitives.removal import InstalledPart, remove_part
from tests.unit.local_host import LocalHost
from tests.unit.operations.gateway.test_placement import command


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstalledPart:
    """All that a gateway can leave, below a folder of the test; systemctl does nothing."""
    paths = tuple(f"{tmp_path}{path}" for path in GATEWAY.paths)
    for path in paths:
        Path(path).mkdir(parents=True)
        Path(path, "backend-keys.map").touch()
    command(tmp_path, "systemctl", "exit 0", monkeypatch)
    return GATEWAY._replace(paths=paths)


def test_no_key_remains(gateway: InstalledPart) -> None:
    host: Any = LocalHost()
    remove_part(host, gateway)
    assert [path for path in gateway.paths if Path(path).exists()] == []


def test_a_removal_that_was_interrupted_is_repeated(
    gateway: InstalledPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(tmp_path, "rm", '/bin/rm -rf -- "$3"; exit 1', monkeypatch)
    host: Any = LocalHost()
    with pytest.raises(HostFailed, match="removing the gateway"):
        remove_part(host, gateway)
    assert Path(f"{tmp_path}{UNIT_FILE}").exists()


def test_files_stay_where_a_unit_does_not_stop(
    gateway: InstalledPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(tmp_path, "systemctl", '[ "$1" != is-active ] || echo active', monkeypatch)
    host: Any = LocalHost()
    with pytest.raises(HostFailed, match=r"removing the gateway: .* is still running"):
        remove_part(host, gateway)
    assert [path for path in gateway.paths if not Path(path).exists()] == []
