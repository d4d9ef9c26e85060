"""A tunnel to a listener of this process, as `rigup eval` opens one: prints its port, then does what it is told.

python tunnelled.py UNIT own|foreign       own: every process is taken for one of the unit's

A process of its own, since gevent must have its way with sockets, as it has in rigup.
"""

from gevent import monkey

monkey.patch_all()

import socket  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

from rigup.connection import tunnel  # noqa: E402
from rigup.connection.login_shell import with_marker  # noqa: E402
from rigup.errors import RigupError  # noqa: E402

UNIT_OF = "def unit_of(pid: str) -> str:\n"


class Listener:
    """Answers every request, and counts those that were sent."""

    def __init__(self, port: int = 0) -> None:
        self.server = socket.create_server(("127.0.0.1", port))
        self.heard = 0
        self.serving = gevent.spawn(self.serve)

    def serve(self) -> None:
        while True:
            connection, _ = self.server.accept()
            with connection:
                if connection.recv(65536):
                    self.heard += 1
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def close(self) -> None:
        self.serving.kill()
        self.server.close()


class Channel:
    """A command's, as paramiko has it."""

    def __init__(self, line: str) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )

    def settimeout(self, seconds: float) -> None:
        return None

    def sendall(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)

    def recv(self, size: int) -> bytes:
        assert self.process.stdout
        return self.process.stdout.read(size) or b""

    def close(self) -> None:
        self.process.kill()


def main(unit: str, whose: str) -> None:
    listener = Listener()
    heard, there = 0, listener.server.getsockname()

    def start(command: Any, text: str, **_: Any) -> Channel:
        line = str(with_marker(command).get_raw_value())
        return Channel(line.replace(UNIT_OF, f'{UNIT_OF}    return "{unit}"\n') if whose == "own" else line)

    transport = SimpleNamespace(open_channel=lambda kind, address, source, timeout: socket.create_connection(address))
    connector = SimpleNamespace(start=start, client=SimpleNamespace(get_transport=lambda: transport))
    state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
    host = SimpleNamespace(name="box", connector=connector, data=SimpleNamespace(_sudo=None), state=state)
    try:
        with tunnel.tunnel(host, f"http://127.0.0.1:{there[1]}", unit, "box: chat") as door:
            print(door.url.rpartition(":")[2], flush=True)
            while word := gevent.get_hub().threadpool.apply(sys.stdin.readline):
                match word.strip():
                    case "heard":
                        print(heard + listener.heard, flush=True)
                    case "restart" | "swap" as event:
                        whose = "own" if event == "restart" else "foreign"
                        heard += listener.heard
                        listener.close()
                        listener = Listener(there[1])
                        print("done", flush=True)
                    case "end":
                        door.check()
                        raise AssertionError("nothing was refused")
    except RigupError as error:
        print(f"{type(error).__name__}: {error.message}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
