"""Has a stand-in of a server answer, in this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseServer
from typing import TypeVar

SomeServer = TypeVar("SomeServer", bound=BaseServer)


@contextmanager
def serving(server: SomeServer) -> Iterator[SomeServer]:
    """Within it the server answers, in a thread of its own; it is closed after it."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of an address at which each connection is `serve`d in a thread of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
