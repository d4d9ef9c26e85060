"""Which host keys are trusted, and where an accepted one is recorded."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest
from pyinfra.connectors.sshuserclient import client as ssh_client

from rigup.connection.host_keys import POLICY, check_host_keys, with_policy


def test_host_key_policy(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host loose\n  StrictHostKeyChecking accept-new\nHost *\n  StrictHostKeyChecking ask\n")

    def policy(name: str, **data: str) -> str:
        return str(with_policy(name, {"ssh_config_file": str(config), **data})[POLICY])

    assert policy("loose") == policy("ada@loose") == policy("box", ssh_hostname="loose") == "accept-new"
    assert policy("other") == "yes"
    assert policy("loose", ssh_config_file=str(tmp_path / "none")) == "yes"
    assert policy("other", ssh_strict_host_key_checking="no") == "no"


@pytest.mark.parametrize("value", [None, "ask", "yes", "nonsense"])
def test_an_unknown_host_key_is_refused_and_never_asked_about(value: str | None) -> None:
    check_host_keys()
    assert type(ssh_client.get_missing_host_key_policy(value)) is ssh_client.StrictPolicy


def test_a_key_that_was_accepted_is_recorded_and_counts_at_once(tmp_path: Path) -> None:
    check_host_keys()
    client, key = ssh_client.SSHClient(), paramiko.ECDSAKey.generate()
    client._host_keys_filename = str(tmp_path / "ssh/known_hosts")
    ssh_client.get_missing_host_key_policy("accept-new").missing_host_key(client, "box", key)
    assert (tmp_path / "ssh/known_hosts").read_text() == f"box {key.get_name()} {key.get_base64()}\n"
    assert client._host_keys.check("box", key)
