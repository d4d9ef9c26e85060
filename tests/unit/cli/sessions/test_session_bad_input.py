"""Bad input, from what is written to hosts that cannot be reached: what is named, a hint, exit code 2.

Everything goes through `rigup apply --yes`, which would change a host if it came that far. A few of these also stand
before a booted machine: tests/lab/test_refused_machines.py.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import paramiko
import pytest

from rigup.cli import main
from tests.command_line import DESCRIPTION, CommandLine
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
# What is written, the words after `apply --yes`, what the message begins with: the place and the value.
WRITTEN: list[tuple[dict[str, str], tuple[str, ...], str]] = [
    ({}, ("gone.py",), "gone.py: "),
    ({"inventories/fleet.py": 'boxes = [\n    "a"\n    "b", ,\n]\n'}, (), "inventories/fleet.py:3: invalid syntax"),
    ({"inventories/fleet.py": 'others = ["a"]\n'}, (), 'inventories/fleet.py: group "others" '),
    ({}, ("--limit", "zz"), '--limit: "zz" '),
    ({DATA: "import sys\n\nsys.exit(3)\n"}, (), f"{DATA}:3: SystemExit: 3"),
    ({DATA: DESCRIPTION.replace("[]", '["RTX 3090", "RTX 3900"]')}, (), f'{DATA}: rig.gpus[1]: unknown GPU "RTX 3900"'),
    ({DATA: DESCRIPTION.replace("[]", '"100x RTX 3090"')}, (), f"{DATA}: rig.gpus: 100 GPUs "),
    ({DATA: DESCRIPTION.replace("[]", '[], "host_memory_gib": -1')}, (), f"{DATA}: rig.host_memory_gib: must be more "),
    ({DATA: DESCRIPTION.replace("[]", '[], "os": "debian-11"')}, (), f'{DATA}: rig.os: "debian-11" '),
    ({DATA: service(model=MODEL, port=99999)}, (), f"{DATA}: services.chat.port: must be at most 65535"),
    ({DATA: service(model=MODEL, context=-4096)}, (), f"{DATA}: services.chat.context: must be at least 1"),
    ({DATA: service(model=MODEL, context=10**12)}, (), f"{DATA}: services.chat.context: must be at most 16777216"),
    ({DATA: service(model=MODEL, port="8000")}, (), f"{DATA}: services.chat.port: must be "),
    ({DATA: service(model=MODEL, prot=1)}, (), f"{DATA}: services.chat.prot: unknown key"),
    ({DATA: service(model=MODEL, listen="everywhere")}, (), f'{DATA}: services.chat.listen: "everywhere" '),
    ({DATA: service(model="SmolLM2-135M-Instrct")}, (), f"{DATA}: services.chat.model: unknown model "),
    (
        {DATA: service(checkpoint="QuantFactory/SmolLM2-135M-Instruct-GUFF")},
        (),
        f'{DATA}: services.chat.checkpoint: unknown checkpoint "QuantFactory/SmolLM2-135M-Instruct-GUFF"',
    ),
    ({DATA: DESCRIPTION.replace("http://hub", "ftp://hub")}, (), f'{DATA}: hub: "ftp://hub:8090" '),
]


@pytest.mark.parametrize(("files", "words", "beginning"), WRITTEN, ids=[row[2] for row in WRITTEN])
def test_what_is_written(
    line: CommandLine,
    files: dict[str, str],
    words: tuple[str, ...],
    beginning: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line.describe([("a", {"ssh_hostname": "127.0.0.1", "ssh_port": 9})])
    for name, text in files.items():
        line.write(name, text)
    monkeypatch.chdir(line.fleet)
    assert main.main(["apply", "--yes", "--json", *words]) == 2
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert error["message"].startswith(beginning)
    assert error["hint"]
    assert said.err == f"rigup: {error['message']}\nhint: {error['hint']}\n"


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
