"""A ProxyCommand of ssh_config whose end is noticed, and told with its last line."""

from __future__ import annotations

import os
import select
import subprocess
from contextlib import suppress
from typing import Any

import paramiko

from rigup.connection import pyinfra_internals
from rigup.printable import one_line

END_SECONDS = 1.0
MOST_BYTES = 1 << 16


class WatchedProxyCommand(paramiko.ProxyCommand):
    """A ProxyCommand whose end is one: paramiko's own reads on for ever, and stumbles over ending it again."""

    def recv(self, size: int) -> bytes:
        """As a socket's: what has come, up to `size`; empty at the end."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], self.timeout)[0]:
            raise TimeoutError
        return os.read(self.process.stdout.fileno(), size)

    def close(self) -> None:
        """Ends the program, if it has not ended."""
        with suppress(ProcessLookupError):
            super().close()

    def last_words(self) -> str:
        """How the program ended, with the last line of its standard error; "" while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        if self.process.returncode is None:
            return ""
        said = b""
        assert self.process.stderr
        while len(said) < MOST_BYTES and select.select([self.process.stderr], [], [], 0)[0]:
            if not (chunk := os.read(self.process.stderr.fileno(), MOST_BYTES)):
                break
            said += chunk
        lines = [one_line(line) for line in said.decode(errors="replace").splitlines() if line.strip()]
        return f"{self.process.returncode}" + (f": {lines[-1]}" if lines else "")


def watch_proxy_commands() -> None:
    """Has every ProxyCommand of ssh_config watched."""
    pyinfra_internals.replace_proxy_command(WatchedProxyCommand)


def proxy_end(client: Any) -> str:
    """The last words of the ProxyCommand that a client tried to connect through; "" without one, or while it runs."""
    sock = pyinfra_internals.socket_of(client)
    return sock.last_words() if isinstance(sock, WatchedProxyCommand) else ""
