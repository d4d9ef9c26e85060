"""A host for unit tests: this machine, as this user. It stands for a pyinfra Host where only commands are run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class LocalHost:
    """Runs each command in a shell here, as the connector would there."""

    def __init__(self, name: str = "box") -> None:
        self.name = name
        self.data = SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.connector_data: dict[str, Any] = {}
        self.commands: list[str] = []

    def run_shell_command(
        self, command: Any, _sudo: bool = False, _stdin: str | None = None, _env: Mapping[str, str] | None = None
    ) -> tuple[bool, Any]:
        """The result in pyinfra's form: whether it went well, and what it printed."""
        line = command.get_raw_value()
        self.commands.append(line)
        environment = {**os.environ, **(_env or {})}
        done = subprocess.run(
            ["sh", "-c", line],
            input=_stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            env=environment,
        )
        return done.returncode == 0, SimpleNamespace(stdout=done.stdout, stderr=done.stderr)
