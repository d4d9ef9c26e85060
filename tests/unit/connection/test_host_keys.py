"""Which host keys are trusted, and where an accepted one is recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paramiko
import pytest
from pyinfra.connectors.sshuserclient import client as ssh_client

from rigup.connection.host_keys import POLICY, check_host_keys, transport, with_policy
from rigup.connection.known_hosts import KnownHosts
from tests.unit.ssh_server import SshServer


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
    client, key = ssh_client.SSHClient(), paramiko.ECDSAKey.generate()
    client._host_keys = KnownHosts(paramiko.HostKeys(), ())
    with pytest.raises(paramiko.SSHException, match="StrictPolicy: No host key for box "):
        ssh_client.get_missing_host_key_policy(value).missing_host_key(client, "box", key)


def test_a_key_that_was_accepted_is_recorded_and_counts_at_once(tmp_path: Path) -> None:
    check_host_keys()
    client, key = ssh_client.SSHClient(), paramiko.ECDSAKey.generate()
    client._host_keys = KnownHosts(paramiko.HostKeys(), ())
    client._host_keys_filename = str(tmp_path / "ssh/known_hosts")
    ssh_client.get_missing_host_key_policy("accept-new").missing_host_key(client, "box", key)
    assert (tmp_path / "ssh/known_hosts").read_text() == f"box {key.get_name()} {key.get_base64()}\n"
    assert client._host_keys.check("box", key)


def test_a_host_is_known_under_its_alias(tmp_path: Path) -> None:
    """A changed key under the name itself, as of another machine at the same address, does not matter then."""
    check_host_keys()
    with SshServer() as server:
        other = paramiko.ECDSAKey.generate()
        known, config = tmp_path / "known_hosts", tmp_path / "config"
        known.write_text(
            f"[127.0.0.1]:{server.port} {other.get_name()} {other.get_base64()}\n"
            f"box.lan {server.key.get_name()} {server.key.get_base64()}\n"
        )
        config.write_text(f"Host box\n  HostName 127.0.0.1\n  Port {server.port}\n  HostKeyAlias box.lan\n")
        for name, refusal in (("box", paramiko.AuthenticationException), ("127.0.0.1", paramiko.BadHostKeyException)):
            with pytest.raises(refusal):
                connect(name, config, known, port=server.port)


def connect(name: str, config: Path, known: Path, **more: Any) -> None:
    """Connects as the connector does; nobody is let in by the server."""
    client = ssh_client.SSHClient()
    try:
        client.connect(
            name,
            username="ada",
            pkey=paramiko.ECDSAKey.generate(),
            transport_factory=transport,
            _pyinfra_ssh_config_file=str(config),
            _pyinfra_ssh_known_hosts_file=str(known),
            _pyinfra_ssh_strict_host_key_checking="yes",
            **more,
        )
    finally:
        client.close()
