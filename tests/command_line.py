"""rigup as a user runs it: in a fleet folder, with a home folder of its own; as a process or within this one."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rigup.cli.main import main
from rigup.connection import startup

GROUP = "boxes"
DESCRIPTION = 'rig = {"gpus": []}\nservices = {"chat": {"model": "SmolLM2-135M-Instruct"}}\nhub = "http://hub:8090"\n'
Host = str | tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Done:
    """A run that has ended. `err` is empty for one on a terminal, where both streams are one."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, all of which must be one JSON document."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def hosts(self) -> dict[str, dict[str, Any]]:
        """By name, what `diff --json` and `apply --json` say of each host."""
        return {host["host"]: host for host in self.json["hosts"]}

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Every (message, hint) of a run with --json, whether it came to ask hosts or not."""
        found = self.json
        errors = [found["error"]] if "error" in found else [e for host in found["hosts"] for e in host["errors"]]
        return [(error["message"], error["hint"]) for error in errors]


class CommandLine:
    """A fleet folder and a home folder under `root`, and rigup run in them."""

    def __init__(self, root: Path) -> None:
        self.fleet, self.home = root / "fleet", root / "home"
        for folder in (self.fleet / "inventories", self.fleet / "group_data", self.home / ".ssh"):
            folder.mkdir(parents=True)

    def write(self, path: str, text: str) -> None:
        """Writes a file of the fleet."""
        (self.fleet / path).write_text(text)

    def describe(self, hosts: Sequence[Host], group_data: str = DESCRIPTION) -> None:
        """Writes the only inventory, with one group, and its group_data."""
        self.write("inventories/fleet.py", f"{GROUP} = {list(hosts)!r}\n")
        self.write(f"group_data/{GROUP}.py", group_data)

    def ssh_config(self, text: str) -> None:
        """Writes ~/.ssh/config."""
        (self.home / ".ssh/config").write_text(text)

    def environment(self, more: dict[str, str] | None = None) -> dict[str, str]:
        """This process's environment but for what would leak in: agent, sudo password, colours."""
        unwanted = ("SSH_AUTH_SOCK", "RIGUP_SUDO_PASSWORD", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
        kept = {key: value for key, value in os.environ.items() if key not in unwanted}
        return {**kept, "HOME": str(self.home), "TERM": "xterm-256color", **(more or {})}

    def run(self, *words: str, seconds: float = 90, **environment: str) -> Done:
        """Runs `rigup words` without a terminal and with nothing on standard input."""
        done = subprocess.run(
            [sys.executable, "-m", "rigup", *words],
            cwd=self.fleet,
            env=self.environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def call(self, *words: str, **environment: str) -> Done:
        """Like `run`, within this process, where nothing is imported a second time. Not for verbs that connect."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        with (
            patch.dict(os.environ, self.environment(environment), clear=True),
            contextlib.chdir(self.fleet),
            open(os.devnull) as nothing,
            patch.object(sys, "stdin", nothing),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            patch.object(startup, "patch_for_many_hosts"),
        ):
            try:
                code = main(words)
            except SystemExit as ended:  # argparse's
                code = int(ended.code or 0)
        texts = [stream.buffer.getvalue().decode() for stream in (out, err)]
        return Done(code, *texts)

    def on_terminal(
        self, *words: str, answers: dict[str, str] | None = None, seconds: float = 90, **environment: str
    ) -> Done:
        """Runs `rigup words` on a terminal of its own; `answers` are typed once their prompt has appeared."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "rigup", *words],
            cwd=self.fleet,
            env=self.environment(environment),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        said, open_questions, deadline = "", dict(answers or {}), time.monotonic() + seconds
        try:
            while chunk := _read(ours):
                assert time.monotonic() < deadline, said
                said += chunk
                for prompt in [prompt for prompt in open_questions if prompt in said]:
                    os.write(ours, (open_questions.pop(prompt) + "\n").encode())
            return Done(process.wait(60), said, "")
        finally:
            process.kill()
            os.close(ours)


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 1 << 16).decode(errors="replace")
    except OSError:  # what Linux says when the last process has left the terminal
        return ""
