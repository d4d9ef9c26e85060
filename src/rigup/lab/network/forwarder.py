"""Forwards connections from the loopback addresses of a lab into it: `python -m rigup.lab.network.forwarder LAB`.

127.77.N.x:22 on this machine is port 22 of 10.77.N.x inside, for each machine of the lab.
If a server of this machine uses another forwarded port on every address, the log says so.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from functools import partial
from typing import Any

from rigup.lab.folder import LabFolder, LabRecord
from rigup.lab.network import addresses
from rigup.lab.network.network import namespace_socket

CONNECT_SECONDS = 10


async def main() -> None:
    """Listens for every machine of the lab, also for those that a later `up` adds."""
    folder = LabFolder(sys.argv[1])
    served, servers = 0, list[asyncio.Server]()
    while True:
        record = folder.record()
        while record and served < record.hosts:
            served += 1
            servers += await offer(record, served)
        await asyncio.sleep(0.1)


async def offer(record: LabRecord, index: int) -> list[asyncio.Server]:
    """Listens for one machine; raises OSError if its SSH port cannot be offered."""
    servers = []
    address = addresses.loopback_address(record.number, index)
    ports = {record.ssh_port: addresses.SSH_PORT, **{port: port for port in addresses.FORWARDED_PORTS}}
    for outside, inside in ports.items():
        try:
            carry_to = partial(carry, record.number, index, inside)
            servers.append(await asyncio.start_server(carry_to, address, outside))
        except OSError as error:
            if inside == addresses.SSH_PORT:
                raise
            print(f"{address}:{outside} is not forwarded to {record.name}{index}: {error.strerror}", flush=True)
    return servers


async def carry(number: int, index: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forwards one connection in both directions; a reset of one side resets the other."""
    inner = namespace_socket(addresses.namespace(number))
    inner.setblocking(False)
    inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a small packet waits where its sender says, not here
    target = (addresses.machine_address(number, index), port)
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(inner, target), CONNECT_SECONDS)
    except OSError:
        inner.close()
        writer.transport.abort()
        return
    inner_reader, inner_writer = await asyncio.open_connection(sock=inner)
    try:
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer, inner))
    except (OSError, RuntimeError):
        reset(writer)
        reset(inner_writer)
    else:
        inner_writer.close()
        writer.close()


def reset(writer: asyncio.StreamWriter) -> None:
    """Resets a connection like a crash, without an orderly close."""
    if not writer.transport.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: Any = None) -> None:
    """Copies one direction until it ends, and passes the end on; raises OSError if it breaks.

    source: the socket that is read from, if its data must be acknowledged at once. On a real network the client
    acknowledges; here a server that waits for an acknowledgement would wait for this process.
    """
    while data := await reader.read(1 << 16):
        if source is not None:
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        writer.write(data)
        await writer.drain()
    writer.write_eof()


if __name__ == "__main__":
    asyncio.run(main())
