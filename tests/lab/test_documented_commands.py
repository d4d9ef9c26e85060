"""The commands of the pages that need a host, on one machine under the names that the pages use, in one order."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.documented_commands import AT_A_HOST
from tests.lab.fleet import Fleet

pytestmark = [
    pytest.mark.lab,
    pytest.mark.rests_on(
        "lab",
        "the run",
        "running services",
        "benchmarks of services",
        "drift and status",
        "gateways",
        "reports",
        "rollback",
    ),
]

# What ends with something else than 0: nothing is applied yet, no card is there, the second machine is bare.
CODES = {
    "rigup diff": 1,
    "rigup diff --limit gpu1.lan": 1,
    "rigup exec nvidia-smi -L": 1,
    "rigup compare gpu1.lan gpu2.lan": 1,
}
ASKS = ("rigup apply", "rigup restart", "rigup rollback", "rigup key rotate", "rigup uninstall")
# What goes on until Ctrl-C, by what it has said by then.
GOES_ON = {"rigup logs chat -f": "gpu1.lan chat", "rigup tunnel chat --limit gpu1.lan": "open until Ctrl-C"}
SAYS = {
    "rigup diff": "chat",
    "rigup status": "answers",
    'rigup chat chat "What is the capital of France?"': "word0",
    "git diff | rigup chat coder --max-tokens 400": "word399",
    "rigup stop chat": "chat: stopped",
    "rigup logs": "listening",
    "rigup logs chat --since 2h --limit gpu1.lan": "listening",
    "rigup releases": "chat",
    "rigup key rotate chat": "new key",
    "rigup compare gpu1.lan gpu2.lan": "chat",
    "rigup uninstall gpu1.lan": "removed",
}


class Documented(Fleet):
    """A fleet of the names that pages use: gpu1.lan, for a while gpu2.lan; services chat and coder; group quad_3090."""

    def describe(self, hosts: int = 1, **settings: Any) -> None:
        entries = [(f"gpu{n}.lan", self.hosts[n - 1].machine.inventory[1]) for n in range(1, hosts + 1)]
        model = {"model": "SmolLM2-135M-Instruct", "context": 8192, **settings}
        services = {"chat": {**model, "listen": "0.0.0.0"}, "coder": {**model, "port": 8001}}
        for folder in ("inventories", "group_data"):
            (self.root / folder).mkdir(exist_ok=True)
        (self.root / "inventories/fleet.py").write_text(f"quad_3090 = {entries!r}\n")
        (self.root / "group_data/quad_3090.py").write_text(
            f'rig = {{"gpus": []}}\nservices = {services!r}\nhub = {self.hub.url!r}\nbuilder = "gpu1.lan"\n'
        )


@pytest.fixture
def documented(fleet: Fleet, tmp_path: Path) -> Iterator[Documented]:
    fleet.host.wipe()
    shutil.copy(fleet.root / "rigup.lock", tmp_path)
    found = Documented(fleet.lab, fleet.hub, tmp_path, fleet.cache)
    found.describe()
    yield found
    found.end_runs()
    fleet.host.wipe()


def test_each_command_does_what_its_page_says(documented: Documented) -> None:
    for command in AT_A_HOST:
        if command == "rigup rollback":
            documented.describe(context=4096)
            documented.apply()
        if command.startswith("rigup compare"):
            documented.describe(hosts=2)
        run(documented, command)


def run(fleet: Documented, command: str) -> None:
    """Runs a command as it stands; what asks gets --yes, and a conversation a line."""
    typed = command.partition(" > ")[0].rpartition(" | ")[2] if "grep" not in command else command
    words = shlex.split(typed)[1:] + (["--yes"] if command.startswith(ASKS) else [])
    if command == "rigup chat chat":
        ours, terminal = os.openpty()
        talk = fleet.start(*words, terminal=terminal)
        os.write(ours, b"Hello\n")
        talk.wait_to_say("word3")
        talk.interrupt()
        os.write(ours, b"\x04")
        talk.wait(30)
        os.close(ours)
        os.close(terminal)
        return
    if command in GOES_ON:
        going = fleet.start(*words)
        going.wait_to_say(GOES_ON[command])
        going.interrupt()
        assert going.wait() == 0, going.text
        return
    theirs, ours = os.pipe()
    os.write(ours, b"What does this change?\n")
    os.close(ours)
    done = fleet.start(*words, terminal=theirs if command.startswith("git diff |") else None)
    os.close(theirs)
    assert done.wait(600) == CODES.get(command, 0), f"{command}: {done.text}"
    assert SAYS.get(command, "") in done.text, f"{command}: {done.text}"
