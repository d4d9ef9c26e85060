"""A connector that stands for SSH: commands run in a shell here."""

from __future__ import annotations

import shutil
import subprocess
from types import SimpleNamespace
from typing import Any

from pyinfra.connectors.util import CommandOutput, OutputLine, make_unix_command_for_host

from rigup.connection.connector import RigupSSHConnector
from rigup.connection.login_shell import with_marker
from rigup.connection.pyinfra_internals import ConnectError
from tests.unit.connection.local_channel import LocalChannel


class LocalConnector(RigupSSHConnector):
    """Runs commands here. `commands` are those of all hosts, in order, as (host, command)."""

    commands: list[tuple[str, str]] = []
    unreachable: set[str] = set()

    def connect(self) -> None:
        if self.host.name in self.unreachable:
            raise ConnectError("Could not connect (timed out)")
        self.client = SimpleNamespace(get_transport=lambda: True, close=lambda: None)

    def disconnect(self) -> None:
        return None

    def _run(self, command: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        stdin = arguments.pop("_stdin", None)
        timeout = arguments.pop("_timeout", None)
        for key in ("print_output", "print_input", "_get_pty", "_success_exit_codes", "_beginning"):
            arguments.pop(key, None)
        self.commands.append((self.host.name, str(command.get_raw_value())))
        line = make_unix_command_for_host(self.state, self.host, command, **arguments).get_raw_value()
        words = ["timeout", str(timeout or 30), "sh", "-c", line]
        done = subprocess.run(words, input=stdin or "", capture_output=True, text=True)
        if done.returncode == 124:
            raise TimeoutError
        streams = (("stdout", done.stdout), ("stderr", done.stderr))
        lines = [OutputLine(name, text) for name, stream in streams for text in stream.splitlines()]
        return done.returncode == 0, CommandOutput(lines)

    def stream(self, command: Any, **arguments: Any) -> tuple[Any, bytes]:
        line = str(with_marker(command).get_raw_value())
        self.commands.append((self.host.name, line))
        return LocalChannel(line, {"HOST": self.host.name}), b""

    def put_file(self, filename_or_io: Any, remote_filename: str, *_: Any, **__: Any) -> bool:
        with self._changing():
            shutil.copyfile(filename_or_io, remote_filename)
        return True
