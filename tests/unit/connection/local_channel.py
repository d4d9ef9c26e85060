"""The channel of a command that runs here, as paramiko has it; reading lets other greenlets run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace

from gevent.os import make_nonblocking, nb_read


class LocalChannel:
    """Runs a line of sh."""

    def __init__(self, line: str, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            ["sh", "-c", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe
            make_nonblocking(pipe.fileno())

    def recv(self, size: int) -> bytes:
        """Of standard output."""
        assert self.process.stdout
        return bytes(nb_read(self.process.stdout.fileno(), size))

    def recv_stderr(self, size: int) -> bytes:
        """Of standard error."""
        assert self.process.stderr
        return bytes(nb_read(self.process.stderr.fileno(), size))

    def recv_exit_status(self) -> int:
        """Once it has ended."""
        return self.process.wait(60)

    def get_transport(self) -> SimpleNamespace:
        """A connection that stands."""
        return SimpleNamespace(is_active=lambda: True)

    def close(self) -> None:
        """Ends the command."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, 15)
        self.process.wait(60)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe
            pipe.close()
