"""A new user: rigup's wheel in an environment of its own, an empty folder, and machines of a lab."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = "SmolLM2-135M-Instruct"
QUESTION = "What is the capital of France? Answer in one sentence."
GROUP_DATA = "group_data/cpu.py"
HUB = "http://hub:8090"
SECONDS = 900
NOT_KEPT = ("PYTHONPATH", "VIRTUAL_ENV", "HF_ENDPOINT", "COLUMNS")


@dataclass(frozen=True)
class Said:
    """What a program printed."""

    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """All of it."""
        return self.stdout + self.stderr

    @property
    def json(self) -> dict[str, Any]:
        """What it printed for scripts."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found


class NewUser:
    """Somebody who has a wheel and an empty folder. lab: its name. hosts: its machines, once they run."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel
        self.environment, self.fleet = folder / "environment", folder / "fleet"
        self.lab = f"day{os.getpid()}x"
        self.hosts: list[str] = []
        self.addresses: list[str] = []
        self.ssh_config = ""
        self.fleet.mkdir()

    @property
    def connection(self) -> tuple[str, ...]:
        """What `up` and `init` are told of the lab: how to reach its machines, and its hub."""
        return ("--ssh-config", self.ssh_config, "--hub", HUB)

    def run(self, program: str, *words: str, expect: int | None = 0, variables: dict[str, str] | None = None) -> Said:
        """Runs a program of the environment in the fleet's folder to this exit code; None for any."""
        done = subprocess.run(
            [self.environment / "bin" / program, *words],
            cwd=self.fleet,
            env=self._variables(variables or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        said = Said(done.stdout, done.stderr)
        assert "Traceback" not in said.text, said.text[-2000:]
        typed = " ".join((program, *words))
        assert expect in (None, done.returncode), f"{typed}: exit code {done.returncode}\n{said.text[-2000:]}"
        return said

    def rigup(self, *words: str, expect: int | None = 0, **variables: str) -> Said:
        """Runs `rigup words`."""
        return self.run("rigup", *words, expect=expect, variables=variables)

    def json(self, *words: str, expect: int | None = 0, **variables: str) -> dict[str, Any]:
        """The document of `rigup words --json`."""
        return self.rigup(*words, "--json", expect=expect, **variables).json

    @contextmanager
    def tunnel(self, service: str) -> Iterator[str]:
        """The base URL of a service of the first host, while `rigup tunnel` runs."""
        words: list[str | Path] = [
            self.environment / "bin/rigup",
            "tunnel",
            service,
            "--limit",
            self.hosts[0],
            "--json",
        ]
        with (self.folder / "tunnel").open("w+") as out:
            process = subprocess.Popen(
                words, cwd=self.fleet, env=self._variables({}), stdin=subprocess.DEVNULL, stdout=out
            )
            try:
                wait_for(lambda: _document(out.name) or process.poll() is not None, "rigup tunnel says where it is")
                (tunnel,) = _document(out.name)["tunnels"]
                yield str(tunnel["base_url"])
                process.send_signal(signal.SIGINT)
                assert process.wait(30) == 0, "rigup tunnel did not end well after Ctrl-C"
            finally:
                process.kill()
                process.wait()

    def ssh(self, host: str, command: str, expect: int = 0) -> str:
        """What a command on a host prints, over plain ssh."""
        done = subprocess.run(
            ["ssh", "-F", self.ssh_config, host, command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
        )
        assert done.returncode == expect, f"{host}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """The services of group_data."""
        found: dict[str, dict[str, Any]] = ast.literal_eval(self._assignment()[1].value)
        return found

    def serve(self, services: dict[str, dict[str, Any]]) -> None:
        """Writes other services into group_data, as with an editor."""
        text, node = self._assignment()
        lines = text.splitlines(keepends=True)
        lines[node.lineno - 1 : node.end_lineno] = [f"services = {services!r}\n"]
        (self.fleet / GROUP_DATA).write_text("".join(lines))

    @contextmanager
    def trying(self, services: dict[str, dict[str, Any]]) -> Iterator[None]:
        """Serves these; the inventory goes back to what it said if that fails, so that later tasks find it whole."""
        before = (self.fleet / GROUP_DATA).read_text()
        self.serve(services)
        try:
            yield
        except BaseException:
            (self.fleet / GROUP_DATA).write_text(before)
            raise

    def lock_at(self, hub: str) -> Said:
        """`rigup lock` with this address of the hub, which is another one here than on the lab's machines."""
        path = self.fleet / GROUP_DATA
        there = path.read_text()
        path.write_text(there.replace(repr(HUB).replace("'", '"'), repr(hub)))
        try:
            return self.rigup("lock")
        finally:
            path.write_text(there)

    def state(self, service: str, host: str | None = None) -> dict[str, Any]:
        """The line of a service in `rigup status`, whatever its exit code."""
        rows = self.json("status", expect=None)["services"]
        (row,) = (one for one in rows if one["service"] == service and one["host"] == (host or self.hosts[0]))
        return dict(row)

    def asks(self, service: str, host: str | None = None) -> dict[str, Any]:
        """The document of `rigup chat` with the question of the health check."""
        found = self.json("chat", service, QUESTION, "--max-tokens", "32", "--limit", host or self.hosts[0])
        assert "Paris" in found["text"], found
        return found

    def on_the_lan(self, path: str, key: str = "", body: dict[str, Any] | None = None) -> tuple[int, str]:
        """Status and text of port 8000 of the first host, asked from another machine, this one; 0 if it is closed."""
        head = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.addresses[0]}:8000{path}", content, head)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as response:
                return int(response.status), str(response.read().decode())
        except urllib.error.HTTPError as error:
            return int(error.code), ""
        except OSError:
            return 0, ""

    def asked_with(self, *keys: str) -> list[int]:
        """The statuses of a short chat request from another machine, with each of these keys; "" is none."""
        said = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
        return [self.on_the_lan("/v1/chat/completions", key, said)[0] for key in keys]

    def end(self) -> None:
        """Takes the lab down if it is up."""
        words = [sys.executable, "-m", "rigup", "lab", "down", self.lab]
        subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)

    def _assignment(self) -> tuple[str, ast.Assign]:
        text = (self.fleet / GROUP_DATA).read_text()
        assigned = (node for node in ast.parse(text).body if isinstance(node, ast.Assign))
        return text, next(node for node in assigned if getattr(node.targets[0], "id", "") == "services")

    def _variables(self, more: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in NOT_KEPT}
        return {**kept, **more}


def wheel_of(folder: Path) -> Path:
    """The wheel of this checkout, built into a folder."""
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (wheel,) = folder.glob("rigup-*.whl")
    return wheel


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Waits until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


def _document(path: str) -> dict[str, Any]:
    """The JSON that a file contains so far, {} before it is whole."""
    try:
        found: dict[str, Any] = json.loads(Path(path).read_text())
    except ValueError:
        return {}
    return found
