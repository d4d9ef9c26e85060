"""A ProxyCommand that ends is told with its last line; one that speaks for a server is read as a socket is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from pyinfra.connectors.sshuserclient import client as ssh_client

from rigup.connection import proxy_command
from rigup.connection.connect_errors import connect_error
from rigup.connection.proxy_command import WatchedProxyCommand, proxy_end, watch_proxy_commands
from tests.hostile import ends
from tests.unit.ssh_server import SshServer

# Passes on what it reads and writes to a port of this machine, as nc does.
PASS_ON = """
import os, socket, sys, threading
there = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
def back():
    while data := there.recv(65536): os.write(1, data)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536): there.sendall(data)
"""


@contextmanager
def through(command: str) -> Iterator[tuple[Any, WatchedProxyCommand]]:
    """A client that connects through this command, and the command's socket; both are gone afterwards."""
    sock = WatchedProxyCommand(command)
    yield SimpleNamespace(_ssh_config={"sock": sock}), sock
    sock.close()
    with sock.process:
        pass


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sh -c 'echo one >&2; echo no route to bastion >&2; exit 255'", "255: no route to bastion"),
        ("sh -c 'exit 1'", "1"),
        ("true", "0"),
    ],
)
def test_how_it_ended(command: str, words: str) -> None:
    with ends(), through(command) as (client, sock):
        assert sock.recv(1) == b""
        assert proxy_end(client) == words


def test_one_that_runs_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_command, "END_SECONDS", 0.01)
    with ends(), through("sleep 60") as (client, sock):
        sock.settimeout(0.01)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        assert proxy_end(client) == ""


def test_a_server_behind_it_is_spoken_to() -> None:
    with SshServer() as server, through(shlex.join([sys.executable, "-c", PASS_ON, str(server.port)])) as (_, sock):
        transport = paramiko.Transport(sock)
        transport.start_client(timeout=60)
        assert transport.get_remote_server_key() == server.key
        transport.close()


def test_every_connection_watches_its_own() -> None:
    watch_proxy_commands()
    assert ssh_client.ProxyCommand is WatchedProxyCommand
    assert proxy_end(SimpleNamespace(_ssh_config={})) == ""


def test_the_message_has_the_last_line() -> None:
    error = connect_error("box", "ProxyCommand ended with 255: no route to bastion")
    assert error.message.endswith("ended with 255: no route to bastion")
    assert "ssh_config" in (error.hint or "")
