"""Runs on a host, as root, for a few seconds: listens on a service's ports, so that peers can test reachability.

usage: listen_briefly.py SECONDS ADDRESS PORT...

Prints "PORT ok" or "PORT <problem>" for each; port 0 lets the kernel choose a port, which is printed.
Then prints "pid <process>" and returns: that process keeps listening until it is ended, or for SECONDS. It closes every
connection at once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import time


def main(seconds: float, address: str, ports: list[int]) -> None:
    """Listens, reports it, and leaves a child that keeps listening."""
    listeners = []
    for port in ports:
        try:
            listener = socket.create_server((address, port))
        except OSError as error:
            print(f"{port} {os.strerror(error.errno or 0)}")
        else:
            listeners.append(listener)
            print(f"{listener.getsockname()[1]} ok")
    sys.stdout.flush()
    child = os.fork()
    if child:
        print(f"pid {child}", flush=True)
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    hang_up(listeners, time.monotonic() + seconds)


def hang_up(listeners: list[socket.socket], end: float) -> None:
    """Accepts and closes connections until the deadline."""
    with selectors.DefaultSelector() as selector:
        for listener in listeners:
            listener.setblocking(False)
            selector.register(listener, selectors.EVENT_READ, listener)
        while (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                with contextlib.suppress(OSError):
                    key.data.accept()[0].close()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(float(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]])
