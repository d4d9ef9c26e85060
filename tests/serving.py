"""Has a stand-in of a web server answer, in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
