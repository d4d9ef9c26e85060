"""Why a host cannot be reached, in words: every sentence of the libraries below that rigup knows."""

from __future__ import annotations

import pytest

from rigup.connection.connect_errors import connect_error

SAID = [
    (
        "Could not resolve hostname ([Errno -2] Name or service not known)",
        "the host name does not resolve (Name or service not known)",
        "check the name in the inventory, or set ssh_hostname",
    ),
    (
        "SSH host key error (Host key for gpu1.lan does not match.)",
        "the host key of gpu1.lan does not match known_hosts",
        "if you know why it changed, remove the old key: ssh-keygen -R 'gpu1.lan'",
    ),
    (
        "SSH error (StrictPolicy: No host key for [gpu1.lan]:2222 found in known_hosts)",
        "the host key of [gpu1.lan]:2222 is not known",
        "log in once with ssh, or list its keys: ssh-keyscan -p 2222 gpu1.lan",
    ),
    (
        "SSH error (StrictPolicy: No host key for gpu1.lan found in known_hosts)",
        "the host key of gpu1.lan is not known",
        "log in once with ssh, or list its keys: ssh-keyscan gpu1.lan",
    ),
    (
        "Authentication error (username=ada, key=~/.ssh/old) (Authentication failed.)",
        "the host accepts none of the offered keys (username=ada, key=~/.ssh/old)",
        "set the key: IdentityFile in ssh_config, or ssh_key",
    ),
    (
        "Authentication error () (Authentication failed.)",
        "the host accepts none of the offered keys",
        "set the key: IdentityFile in ssh_config, or ssh_key",
    ),
    (
        "SSH error (No authentication methods available)",
        "no SSH key to offer",
        "set the key: IdentityFile in ssh_config, or ssh_key",
    ),
    (
        "Could not connect ([Errno None] Unable to connect to port 22 on 10.0.0.7)",
        "port 22 of 10.0.0.7 refuses connections",
        "check that sshd is running there and that ssh_port is correct",
    ),
    (
        "Could not connect (timed out)",
        "no response in time",
        "check that the host is on and reachable from this machine",
    ),
    (
        "SSH error (Error reading SSH protocol banner)",
        "the server accepts connections but does not speak SSH",
        "wait if the host is still booting, and check ssh_port",
    ),
    (
        "SSH error (No existing session)",
        "the server accepts connections but does not speak SSH",
        "wait if the host is still booting, and check ssh_port",
    ),
    (
        "Could not connect ([Errno 101] Network is unreachable)",
        "no route to the host",
        "check that the host is on and that this machine is on the right network",
    ),
    (
        "PyinfraError: No such private key file: keys/gone",
        "the key file keys/gone does not exist",
        "ssh_key must name a private key",
    ),
    (
        "PyinfraError: Invalid private key file: keys/notes.txt",
        "keys/notes.txt is not a readable private key",
        "ssh_key must name a private key",
    ),
    (
        "PyinfraError: Private key file (keys/mine) is encrypted, set ssh_key_password to use this key",
        "the key file keys/mine needs a passphrase",
        "load it into ssh-agent and remove ssh_key, or set ssh_key_password",
    ),
    ("something new", "cannot connect (something new)", "try the same with: ssh -v box"),
]


@pytest.mark.parametrize(("text", "message", "hint"), SAID, ids=[row[0] for row in SAID])
def test_every_reason_in_words_with_a_hint(text: str, message: str, hint: str) -> None:
    error = connect_error("box", text)
    assert (error.message, error.hint, error.exit_code) == (f"box: {message}", hint, 2)
