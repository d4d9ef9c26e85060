"""Machines that rigup refuses to change: what is named, exit code 2, and the machine as it was.

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

pytestmark = pytest.mark.lab

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
    message = f"{name}: the host accepts none of the offered keys (username=root, key={key})"
    assert refused(line).errors == [(message, "set the key: IdentityFile in ssh_config, or ssh_key")]
    assert touched(machine) == []


def test_a_cable_that_is_cut(line: CommandLine, machine: Machine) -> None:
    mark(machine)
    machine.cut()
    began = time.monotonic()
    done = refused(line)
    assert time.monotonic() - began < CLEARLY_LESS_SECONDS
    machine.heal()
    assert done.errors == [
        (
            f"{machine.name}: the server accepts connections but does not speak SSH",
            "wait if the host is still booting, and check ssh_port",
        )
    ]
    assert touched(machine) == []


SUDO = [
    ({}, "sudo needs a password for opspw", "pass --ask-sudo-password, or log in as root"),
    (
        {"RIGUP_SUDO_PASSWORD": "not-the-one"},
        "sudo rejects the password for opspw",
        "check the password",
    ),
]


@pytest.mark.parametrize(("environment", "message", "hint"), SUDO, ids=["no password", "wrong password"])
def test_sudo(line: CommandLine, machine: Machine, environment: dict[str, str], message: str, hint: str) -> None:
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "opspw"})])
    mark(machine)
    done = refused(line, **environment)
    assert done.errors == [(f"{name}: {message}", hint)]
    assert "not-the-one" not in done.text
    assert touched(machine) == []


def test_sudo_that_is_not_for_this_user(line: CommandLine, machine: Machine) -> None:
    machine.ssh("useradd --create-home guest && cp -r /root/.ssh /home/guest/ && chown -R guest: /home/guest")
    name, data = machine.inventory
    line.describe([(name, {**data, "ssh_user": "guest"})])
    assert refused(line).errors[0][0] == f"{name}: sudo needs a password for guest"
    machine.ssh("echo guest:let-me-in-7 | chpasswd", check=True)
    done = refused(line, RIGUP_SUDO_PASSWORD="let-me-in-7")
    machine.ssh("userdel --force --remove guest", check=True)
    assert done.errors == [(f"{name}: guest may not use sudo", "log in as root or as a user with sudo rights")]


SQUATTER = "systemd-run --quiet --collect --unit=squatter python3 -m http.server 8000 --bind 127.0.0.1"
# How the machine is made so, how that is undone, what the message names.
MACHINES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a port in use": (
        f"{SQUATTER}; until ss -Hltn | grep -q :8000; do sleep 0.1; done",
        "systemctl stop squatter",
        ("port 8000 of service chat", "squatter.service"),
    ),
    "a port of a container in snap's Docker": (
        SQUATTER.replace("squatter", "snap.docker.dockerd") + "; until ss -Hltn | grep -q :8000; do sleep 0.1; done",
        "systemctl stop snap.docker.dockerd",
        ("port 8000 of service chat", "snap.docker.dockerd.service"),
    ),
    "too small a disk for the weights": (
        "mount -t tmpfs -o size=50m tmpfs /var/lib",
        "umount /var/lib",
        ("weights", "100.3 MB", "/var/lib", "52.4 MB"),
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
    assert all(word in message for word in named), message
    assert left == []


def test_apply_asks_and_where_nobody_can_answer_it_says_so(line: CommandLine, machine: Machine) -> None:
    mark(machine)
    done = line.run("apply")
    assert done.code == 2
    assert done.err.endswith(
        "rigup: apply needs confirmation, but standard input is not a terminal\nhint: pass --yes\n"
    )
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
        reason = f"dead: port {port} of 127.0.0.1 refuses connections"
        assert [error["message"] for error in done.hosts["dead"]["errors"]] == [reason]

        done = line.run("status")
        assert done.code == 1
        assert f"  {reason}\n  hint: check that sshd is running there and that ssh_port is correct\n" in done.out
        assert done.out.count("was never applied") == 2

        line.describe([bad, ("deader", bad[1])])
        for verb in ("diff", "status"):
            assert line.run(verb).code == 2
