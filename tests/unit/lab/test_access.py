"""What a lab writes for its users: exact text, and code that Python reads back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.lab import access
from rigup.lab.folder import LabFolder, LabRecord

RECORD = LabRecord(
    name="b", number=3, network=1, first_id=524288, suite="bookworm", base="bookworm-x", disk="4g", hosts=2
)
RIG = {"gpus": "4x RTX 3090"}
OTHER_PORT = RECORD.model_copy(update={"ssh_port": 2222, "hosts": 1})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / 'a "cache"'))


def read(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)
    return names


def test_the_inventory_is_one_group_named_as_the_lab() -> None:
    folder = LabFolder("b")
    group = read(access.inventory(RECORD))["b"]
    assert [name for name, _ in group] == ["b1", "b2"]
    assert group[1][1] == {
        "ssh_hostname": "127.77.3.12",
        "lan_address": "10.77.3.12",
        "ssh_user": "root",
        "ssh_key": str(folder.key),
        "ssh_known_hosts_file": str(folder.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }


def test_another_port_than_22_is_said_everywhere() -> None:
    assert read(access.inventory(OTHER_PORT))["b"][0][1]["ssh_port"] == 2222
    assert access.known_hosts(OTHER_PORT, {1: "ssh-ed25519 AAAA b1"}) == "[127.77.3.11]:2222 ssh-ed25519 AAAA\n"
    assert "  Port 2222\n" in access.ssh_config(OTHER_PORT)


def test_known_hosts_has_a_line_a_machine() -> None:
    keys = {2: "ssh-ed25519 BBBB comment", 1: "ssh-ed25519 AAAA"}
    assert access.known_hosts(RECORD, keys) == "127.77.3.11 ssh-ed25519 AAAA\n127.77.3.12 ssh-ed25519 BBBB\n"


def test_ssh_config_checks_host_keys_strictly() -> None:
    folder = LabFolder("b")
    first, second = access.ssh_config(RECORD).split("Host b2\n")
    assert first == (
        "Host b1\n  HostName 127.77.3.11\n  Port 22\n  User root\n"
        f"  IdentityFile {folder.key}\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder.known_hosts}\n  StrictHostKeyChecking yes\n"
        "  KexAlgorithms curve25519-sha256\n"
    )
    assert "HostName 127.77.3.12" in second


def test_group_data_is_written_once_and_then_the_users() -> None:
    data = LabFolder("b").path / "group_data" / "b.py"
    access.write_inventory(RECORD)
    assert "b" in read(LabFolder("b").inventory.read_text())
    assert read(data.read_text())["rig"] == {"gpus": []}
    data.write_text("# mine\n")
    access.write_inventory(RECORD)
    assert data.read_text() == "# mine\n"
    access.write_inventory(RECORD.model_copy(update={"rig": RIG}), overwrite=True)
    names = read(data.read_text())
    assert names["rig"] == RIG
    assert names["services"] == {"chat": {"model": "SmolLM2-135M-Instruct", "quick_build": True}}


def test_group_data_is_python_whatever_a_rig_says() -> None:
    rig = {**RIG, "network": {"private": True}, "os": None, "host_memory_gib": 64.5, "note": 'a "b" \\ \n'}
    text = access.group_data(rig, {"hub": "http://hub"})
    assert text.startswith('rig = {"gpus": "4x RTX 3090", "network": {"private": True}, "os": None, ')
    assert (read(text)["rig"], read(text)["hub"]) == (rig, "http://hub")
