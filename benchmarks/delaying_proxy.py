"""A TCP proxy that hands every byte on a while later, each way: stands for a long line, where the kernel has no netem.

What it cannot show: it acknowledges at once, so a sender that waits for an acknowledgement waits less than in earnest.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import suppress

CHUNK = 1 << 16


def start(target: tuple[str, int], one_way_s: float) -> tuple[multiprocessing.Process, int]:
    """Starts it in a process of its own. Returns that and the port of 127.0.0.1 that leads to the target."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=lambda: asyncio.run(_serve(target, one_way_s, there)), daemon=True)
    process.start()
    return process, int(here.recv())


async def _serve(target: tuple[str, int], one_way_s: float, ready: multiprocessing.connection.Connection) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(one_way_s)
        far_reader, far_writer = await asyncio.open_connection(*target)
        await asyncio.gather(_carry(reader, far_writer, one_way_s), _carry(far_reader, writer, one_way_s))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            with suppress(OSError):
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

    delivering = asyncio.create_task(deliver())
    data = b"."
    while data:
        try:
            data = await reader.read(CHUNK)
        except OSError:
            data = b""
        await queue.put((loop.time() + delay_s, data))
    await delivering
