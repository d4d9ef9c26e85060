"""`lan_address` as hosts of an inventory have it."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.connection.ssh_address import ssh_address
from rigup.errors import InputError
from rigup.project.lan_address import lan_address


@pytest.mark.parametrize("said", ["192.168.100.10", "fd00::7"])
def test_it_is_an_address(said: str) -> None:
    assert lan_address({"lan_address": said}) == said


def test_it_need_not_be_there() -> None:
    assert lan_address({}) is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("gpu1.lan", 'lan_address: "gpu1.lan" is not an IP address'),
        ("192.168.100.10/24", 'lan_address: "192.168.100.10/24" is not an IP address'),
        (3, 'lan_address: "3" is not an IP address'),
        ("127.0.0.1", "lan_address: other hosts cannot reach 127.0.0.1"),
        ("0.0.0.0", "lan_address: other hosts cannot reach 0.0.0.0"),
        ("::1", "lan_address: other hosts cannot reach ::1"),
    ],
)
def test_what_is_not_an_address_is_refused(said: object, message: str) -> None:
    with pytest.raises(InputError) as refused:
        lan_address({"lan_address": said})
    assert refused.value.message == message
    assert refused.value.hint.startswith("set the address at which other hosts reach this one, ")


class Connection(socket.socket):
    """One whose other end has this address."""

    other = ""

    def getpeername(self) -> Any:
        return (self.other, 22)


@pytest.mark.parametrize(
    ("reached", "found"),
    [
        ("192.168.1.7", "192.168.1.7"),
        ("100.64.0.3", "100.64.0.3"),
        ("fd00::7", "fd00::7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("127.77.1.11", None),
        ("169.254.3.4", None),
        ("fe80::1%eth0", None),
        ("8.8.8.8", None),
    ],
)
def test_where_ssh_connects_to_counts_if_other_hosts_may_reach_it(reached: str, found: str | None) -> None:
    with Connection() as connection:
        connection.other = reached
        transport = SimpleNamespace(sock=connection)
        client = SimpleNamespace(get_transport=lambda: transport)
        assert ssh_address(SimpleNamespace(connector=SimpleNamespace(client=client))) == found


def test_behind_a_jump_host_no_address_is_known() -> None:
    client = SimpleNamespace(get_transport=lambda: SimpleNamespace(sock=object()))
    assert ssh_address(SimpleNamespace(connector=SimpleNamespace(client=client))) is None
    assert ssh_address(SimpleNamespace(connector=SimpleNamespace(client=None))) is None
