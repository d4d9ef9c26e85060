"""What is taken from the inventory and from ssh_config."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.connection.ssh_config import connection_data, ssh_config
from rigup.errors import InputError


def test_a_user_in_the_name() -> None:
    data = connection_data("ada@gpu1.lan", {"ssh_port": 2222})
    assert (data["ssh_user"], data["ssh_hostname"], data["ssh_port"]) == ("ada", "gpu1.lan", 2222)


def test_an_ssh_config_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        connection_data("box", {"ssh_config_file": str(tmp_path / "gone")})
    assert caught.value.message == f"box: ssh_config_file: {tmp_path / 'gone'} does not exist"


def test_an_ssh_config_that_cannot_be_read(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  ???\n")
    with pytest.raises(InputError) as caught:
        ssh_config(str(config), "box")
    assert caught.value.message.startswith(f"{config}: ")
    assert caught.value.hint == "check that OpenSSH can read it: ssh -G box"


def test_a_home_folder_in_the_name_of_the_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text("Host box\n  StrictHostKeyChecking accept-new\n")
    data = connection_data("box", {"ssh_config_file": "~/config"})
    assert data["ssh_config_file"] == str(tmp_path / "config")
    assert ssh_config(data["ssh_config_file"], "box")["stricthostkeychecking"] == "accept-new"
