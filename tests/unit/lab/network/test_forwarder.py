"""What carries connections into a lab: how it passes on that one breaks off, what it says of a port that is taken."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from functools import partial

import pytest

from rigup.lab.folder import LabRecord
from rigup.lab.network import addresses, forwarder

RECORD = LabRecord(
    name="b", number=254, network=1, first_id=524288, suite="bookworm", base="x", disk="4g", hosts=1, ssh_port=0
)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine inside the lab is this one."""
    monkeypatch.setattr(forwarder, "namespace_socket", lambda name: socket.socket())
    monkeypatch.setattr(addresses, "machine_address", lambda number, index: "127.0.0.1")


def test_a_connection_that_the_machine_resets_is_reset(inside: None) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(5)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def client() -> None:
        carry = partial(forwarder.carry, 1, 1, server.getsockname()[1])
        async with await asyncio.start_server(carry, "127.0.0.1") as outside:
            reader, writer = await asyncio.open_connection(*outside.sockets[0].getsockname())
            writer.write(b"hello")
            with pytest.raises(ConnectionResetError):
                await asyncio.wait_for(reader.read(), 60)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        asyncio.run(client())
        thread.join(60)


def test_a_small_packet_is_passed_on_at_once(inside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def namespace_socket(name: str) -> socket.socket:
        made.append(socket.socket())
        return made[0]

    async def client() -> int:
        carry = partial(forwarder.carry, 1, 1, server.getsockname()[1])
        async with await asyncio.start_server(carry, "127.0.0.1") as outside:
            _, writer = await asyncio.open_connection(*outside.sockets[0].getsockname())
            connection = await asyncio.to_thread(server.accept)
            at_once = made[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            connection[0].close()
            writer.close()
            return at_once

    monkeypatch.setattr(forwarder, "namespace_socket", namespace_socket)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        assert asyncio.run(client())


def test_what_was_said_arrives_whole_in_both_directions(inside: None) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as heard:
            connection.sendall(heard.read().upper())

    async def client() -> bytes:
        carry = partial(forwarder.carry, 1, 1, server.getsockname()[1])
        async with await asyncio.start_server(carry, "127.0.0.1") as outside:
            reader, writer = await asyncio.open_connection(*outside.sockets[0].getsockname())
            writer.write(b"hello" * 100_000)
            writer.write_eof()
            said = await asyncio.wait_for(reader.read(), 60)
            writer.close()
            await writer.wait_closed()
            return said

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        assert asyncio.run(client()) == b"HELLO" * 100_000
        thread.join(60)


def test_a_port_that_another_server_has_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def offer() -> None:
        for server in await forwarder.offer(RECORD, 1):
            server.close()

    with socket.create_server(("0.0.0.0", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(addresses, "FORWARDED_PORTS", (taken,))
        asyncio.run(offer())
    assert capsys.readouterr().out.startswith(f"127.77.254.11:{taken} is not forwarded to b1: ")
