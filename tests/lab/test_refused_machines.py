"""Machines that rigup refuses to change: what the message names, exit code 2, and the machine as it was.

Everything goes through `rigup apply --yes`, which would change the machine if it came that far. More of what is refused
needs no machine: tests/unit/cli/sessions/test_session_bad_input.py and tests/unit/preflight.
"""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

import pytest

from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from tests.command_line import DESCRIPTION, CommandLine, Done

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run")]

MARKER = "/run/rigup-test-marker"
# What a login writes by itself, and folders that stand for other file systems.
NOT_OURS = ("/var/log*", "/var/lib/systemd*", "/var/lib/sudo*", "/run", "/tmp", "/dev", "/proc", "/sys")
CONNECT_SECONDS = 2
# TCP itself gives up after two minutes; on a busy machine everything takes longer.
CLEARLY_LESS_SECONDS = 30


@pytest.fixture
def line(tmp_path: Path, machine: Machine) -> CommandLine:
    """A fleet of the shared lab's first machine, reached as root."""
    made = CommandLine(tmp_path)
    made.describe([machine.inventory])
    made.ssh_config(f"Host *\n  ConnectTimeout {CONNECT_SECONDS}\n")
    return made


def touched(machine: Machine) -> list[str]:
    """What has changed on the machine's disk since `mark`, but for what a login writes."""
    but = " ".join(f"-not -path '{path}'" for path in NOT_OURS)
    return machine.ssh(f"find / -xdev -cnewer {MARKER} {but}", check=True).stdout.split()


def mark(machine: Machine) -> None:
    machine.ssh(f"touch {MARKER}", check=True)


def refused(line: CommandLine, *words: str, **environment: str) -> Done:
    """A run that must not even begin to change anything."""
    done = line.run("apply", "--yes", "--json", *words, **environment)
    assert done.code == 2, done.text
    return done


def test_a_touched_machine_is_noticed(machine: Machine) -> None:
    mark(machine)
    assert touched(machine) == []
    machine.ssh("touch /etc/hostname", check=True)
    assert touched(machine) == ["/etc/hostname"]


def test_what_is_written(line: CommandLine, machine: Machine) -> None:
    mark(machine)
    line.write("group_data/boxes.py", DESCRIPTION.replace('Instruct"', 'Instruct", "prot": 1'))
    done = refused(line)
    assert [message for message, _ in done.errors] == ["group_data/boxes.py: services.chat.prot: unknown key"]
    assert touched(machine) == []


def test_a_key_that_opens_nothing(line: CommandLine, machine: Machine, tmp_path: Path) -> None:
    name, said = machine.inventory
    key = tmp_path / "other_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    mark(machine)
    line.describe([(name, {**said, "ssh_key": str(key)})])
    ((message, hint),) = refused(line).errors
    assert message.startswith(f"{name}: ") and message.endswith(f" (username=root, key={key})")
    assert "ssh_key" in hint
    assert touched(machine) == []


def test_a_cable_that_is_cut(line: CommandLine, machine: Machine) -> None:
    mark(machine)
    machine.cut()
    began = time.monotonic()
    done = refused(line)
    assert time.monotonic() - began < CLEARLY_LESS_SECONDS
    machine.heal()
    ((message, hint),) = done.errors
    assert message.startswith(f"{machine.name}: ") and " SSH" in message
    assert "ssh_port" in hint
    assert touched(machine) == []


@pytest.mark.parametrize("environment", [{}, {"RIGUP_SUDO_PASSWORD": "not-the-one"}], ids=["none", "wrong"])
def test_sudo(line: CommandLine, machine: Machine, environment: dict[str, str]) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    mark(machine)
    done = refused(line, **environment)
    ((message, hint),) = done.errors
    assert message.startswith(f"{name}: sudo ") and message.endswith(" opspw")
    assert ("--ask-sudo-password" in hint) is not bool(environment)
    assert "not-the-one" not in done.text
    assert touched(machine) == []


def test_sudo_that_is_not_for_this_user(line: CommandLine, machine: Machine) -> None:
    machine.ssh("useradd --create-home guest && cp -r /root/.ssh /home/guest/ && chown -R guest: /home/guest")
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "guest"})])
    message, hint = refused(line).errors[0]
    assert message.startswith(f"{name}: sudo ") and "--ask-sudo-password" in hint
    machine.ssh("echo guest:let-me-in-7 | chpasswd", check=True)
    done = refused(line, RIGUP_SUDO_PASSWORD="let-me-in-7")
    machine.ssh("userdel --force --remove guest", check=True)
    ((message, hint),) = done.errors
    assert message.startswith(f"{name}: guest ") and " root " in hint


SQUATTER = "systemd-run --quiet --collect --unit=squatter python3 -m http.server 8000 --bind 127.0.0.1"
# How the machine is made so, how that is undone, and what the message names.
MACHINES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a port in use": (
        f"{SQUATTER}; until ss -Hltn | grep -q :8000; do sleep 0.1; done",
        "systemctl stop squatter",
        ("port 8000 ", " chat ", " squatter.service"),
    ),
    "a port of a container in snap's Docker": (
        SQUATTER.replace("squatter", "snap.docker.dockerd") + "; until ss -Hltn | grep -q :8000; do sleep 0.1; done",
        "systemctl stop snap.docker.dockerd",
        ("port 8000 ", " chat ", " snap.docker.dockerd.service"),
    ),
    "too small a disk for the weights": (
        "mount -t tmpfs -o size=50m tmpfs /var/lib",
        "umount /var/lib",
        (" 100.3 MB ", " /var/lib,", " 52.4 MB "),
    ),
}


@pytest.mark.parametrize(("setup", "undo", "named"), MACHINES.values(), ids=MACHINES)
def test_a_machine_that_will_not_do(
    line: CommandLine, machine: Machine, setup: str, undo: str, named: tuple[str, ...]
) -> None:
    machine.ssh(setup, check=True)
    try:
        mark(machine)
        done = refused(line)
        left = touched(machine)
    finally:
        machine.ssh(undo, check=True)
    ((message, hint),) = done.errors
    assert message.startswith(f"{machine.name}: ") and hint
    assert [words for words in named if words not in message] == []
    assert left == []


def test_apply_asks_and_where_nobody_can_answer_it_says_so(line: CommandLine, machine: Machine) -> None:
    mark(machine)
    done = line.run("apply")
    assert done.code == 2
    assert "rigup: apply " in done.err and done.err.endswith("hint: pass --yes\n")
    assert touched(machine) == []


def test_one_bad_host_of_several_is_named_and_the_others_go_on(line: CommandLine, lab: Lab) -> None:
    good = [machine.inventory for machine in lab.machines]
    with socket.socket() as closed:  # bound, so that nobody else gets it, and not listening
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        bad = ("dead", {"ssh_hostname": "127.0.0.1", "ssh_port": port})
        line.describe([good[0], bad, good[1]])
        done = line.run("diff", "--json")
        assert done.code == 1
        states = {name: host["state"] for name, host in done.hosts.items()}
        assert states == {good[0][0]: "differs", "dead": "unreachable", good[1][0]: "differs"}
        (error,) = done.hosts["dead"]["errors"]
        assert error["message"].startswith(f"dead: port {port} of 127.0.0.1 ") and "ssh_port" in error["hint"]

        done = line.run("status")
        assert done.code == 1
        assert f"  {error['message']}\n  hint: {error['hint']}\n" in done.out
        assert done.out.count(" never applied") == 2

        line.describe([bad, ("deader", bad[1])])
        for verb in ("diff", "status"):
            assert line.run(verb).code == 2
