"""What is taken from the inventory and from ssh_config."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize("place", ["config", "known_hosts", "ssh_key", "ssh_known_hosts_file", "IdentityFile"])
def test_a_pipe_in_the_place_of_a_file_of_ssh_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    pipe = tmp_path / (f".ssh/{place}" if place in ("config", "known_hosts") else "pipe")
    os.mkfifo(pipe)
    data = {place: str(pipe)} if place.startswith("ssh_") else {}
    if place == "IdentityFile":
        (tmp_path / "named").write_text(f"Host box\n  IdentityFile {pipe}\n")
        data = {"ssh_config_file": str(tmp_path / "named")}
    with pytest.raises(InputError) as caught:
        connection_data("box", data)
    assert f"{pipe if place != 'known_hosts' else '~/.ssh/known_hosts'}: not a regular" in caught.value.message


def test_no_known_hosts_at_all_are_said_with_dev_null(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host box\n  UserKnownHostsFile /dev/null\n")
    assert connection_data("box", {"ssh_config_file": str(config)})["ssh_config_file"] == str(config)
