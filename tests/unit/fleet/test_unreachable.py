"""Why a host cannot be reached, in words: every sentence of the libraries below that rigup knows."""

from __future__ import annotations

import pytest

from rigup.fleet.unreachable import explain

SAID = [
    (
        "Could not resolve hostname ([Errno -2] Name or service not known)",
        "its name does not resolve (Name or service not known)",
        "check the name in the inventory, or set ssh_hostname",
    ),
    (
        "SSH host key error (Host key for gpu1.lan does not match.)",
        "the host key of gpu1.lan is not the known one",
        "if you know why it changed, forget the old one: ssh-keygen -R 'gpu1.lan'",
    ),
    (
        "SSH error (StrictPolicy: No host key for [gpu1.lan]:2222 found in known_hosts)",
        "the host key of [gpu1.lan]:2222 is not known",
        "log in once with ssh, or see its keys: ssh-keyscan -p 2222 gpu1.lan",
    ),
    (
        "SSH error (StrictPolicy: No host key for gpu1.lan found in known_hosts)",
        "the host key of gpu1.lan is not known",
        "log in once with ssh, or see its keys: ssh-keyscan gpu1.lan",
    ),
    (
        "Authentication error (username=ada, key=~/.ssh/old) (Authentication failed.)",
        "it accepts none of the keys offered (username=ada, key=~/.ssh/old)",
        "name the key: IdentityFile in ssh_config, or ssh_key",
    ),
    (
        "Authentication error () (Authentication failed.)",
        "it accepts none of the keys offered",
        "name the key: IdentityFile in ssh_config, or ssh_key",
    ),
    (
        "SSH error (No authentication methods available)",
        "there is no key to offer",
        "name the key: IdentityFile in ssh_config, or ssh_key",
    ),
    (
        "Could not connect ([Errno None] Unable to connect to port 22 on 10.0.0.7)",
        "port 22 of 10.0.0.7 refuses connections",
        "is sshd running there, and is ssh_port right?",
    ),
    ("Could not connect (timed out)", "no answer in time", "is it on, and can this machine reach it?"),
    (
        "SSH error (Error reading SSH protocol banner)",
        "something takes the connection, but does not answer as SSH does",
        "is it on or still booting, and is ssh_port right?",
    ),
    (
        "SSH error (No existing session)",
        "something takes the connection, but does not answer as SSH does",
        "is it on or still booting, and is ssh_port right?",
    ),
    (
        "Could not connect ([Errno 101] Network is unreachable)",
        "there is no route to it",
        "is it on, and is this machine on the right network?",
    ),
    (
        "PyinfraError: No such private key file: keys/gone",
        "its key file keys/gone does not exist",
        "ssh_key must name a private key",
    ),
    (
        "PyinfraError: Invalid private key file: keys/notes.txt",
        "keys/notes.txt is not a private key that can be read",
        "ssh_key must name a private key",
    ),
    (
        "PyinfraError: Private key file (keys/mine) is encrypted, set ssh_key_password to use this key",
        "its key file keys/mine wants a passphrase",
        "load it into ssh-agent and leave ssh_key out, or set ssh_key_password",
    ),
    ("something new", "cannot connect (something new)", "try the same with: ssh -v box"),
]


@pytest.mark.parametrize(("text", "message", "hint"), SAID, ids=[row[0] for row in SAID])
def test_every_reason_in_words_with_a_hint(text: str, message: str, hint: str) -> None:
    error = explain("box", text)
    assert (error.message, error.hint, error.exit_code) == (f"box: {message}", hint, 2)
