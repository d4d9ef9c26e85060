"""Access to a lab's machines: key, known_hosts, ssh_config, and a pyinfra inventory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rigup.lab.folder import LabFolder, LabRecord, give_to_caller, make_folder, write
from rigup.lab.network.addresses import SSH_PORT, loopback_address, machine_address
from rigup.lab.process import run

# quick_build: the compiler is what a rehearsal waits for.
EXAMPLE_SERVICES = {"chat": {"model": "SmolLM2-135M-Instruct", "quick_build": True}}


def make_key(path: Path) -> None:
    """Creates an ed25519 key without a passphrase, unless it exists."""
    if not path.exists():
        new = path.with_name(f".{path.name}.{os.getpid()}")
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rigup-lab", "-f", new])
        for file, name in ((f"{new}.pub", f"{path}.pub"), (new, path)):
            give_to_caller(Path(file))
            Path(file).rename(name)


def known_hosts(record: LabRecord, host_keys: dict[int, str]) -> str:
    """The known_hosts file: one line per machine, by loopback address; `host_keys` are public keys by index."""

    def host(index: int) -> str:
        address = loopback_address(record.number, index)
        return address if record.ssh_port == SSH_PORT else f"[{address}]:{record.ssh_port}"

    return "".join(f"{host(index)} {' '.join(key.split()[:2])}\n" for index, key in sorted(host_keys.items()))


def ssh_config(record: LabRecord) -> str:
    """An OpenSSH client configuration with one entry per machine; `ssh -F FILE ops@lab1` logs in as another user."""
    folder = LabFolder(record.name)

    def entries() -> Iterator[str]:
        for index in range(1, record.hosts + 1):
            yield f"Host {record.name}{index}"
            yield f"  HostName {loopback_address(record.number, index)}"
            yield f"  Port {record.ssh_port}"
            yield "  User root"
            yield f"  IdentityFile {folder.key}"
            yield "  IdentitiesOnly yes"
            yield f"  UserKnownHostsFile {folder.known_hosts}"
            yield "  StrictHostKeyChecking yes"
            yield "  KexAlgorithms curve25519-sha256"  # OpenSSH's default takes ten times the processor time

    return "".join(f"{line}\n" for line in entries())


def host_data(record: LabRecord, index: int) -> dict[str, str | int]:
    """pyinfra's data of one machine: how to connect as root, with a strict host key check."""
    folder = LabFolder(record.name)
    port: dict[str, str | int] = {} if record.ssh_port == SSH_PORT else {"ssh_port": record.ssh_port}
    return {
        "ssh_hostname": loopback_address(record.number, index),
        "lan_address": machine_address(record.number, index),
        **port,
        "ssh_user": "root",
        "ssh_key": str(folder.key),
        "ssh_known_hosts_file": str(folder.known_hosts),
        "ssh_strict_host_key_checking": "yes",
    }


def inventory(record: LabRecord) -> str:
    """An inventory file with all machines in one group that has the lab's name."""
    lines = [f"{record.name} = ["]
    for index in range(1, record.hosts + 1):
        lines.append(f'    ("{record.name}{index}", {{')
        lines += [f'        "{key}": {_literal(value)},' for key, value in host_data(record, index).items()]
        lines.append("    }),")
    return "\n".join([*lines, "]"]) + "\n"


def group_data(rig: Mapping[str, Any] | None, settings: Mapping[str, str] | None = None) -> str:
    """A group_data file: the declared rig (None for no GPUs), one small service, and other settings as text."""
    data = {"rig": {"gpus": []} if rig is None else rig, "services": EXAMPLE_SERVICES, **(settings or {})}
    return "".join(f"{key} = {_literal(value)}\n" for key, value in data.items())


def write_inventory(record: LabRecord, settings: Mapping[str, str] | None = None, overwrite: bool = False) -> None:
    """Writes `inventory.py` into the lab's folder, and `group_data/<lab>.py` if missing.

    settings: further entries of group_data, by key. overwrite: write group_data even if it exists.
    """
    folder = LabFolder(record.name)
    make_folder(folder.path)
    write(folder.inventory, inventory(record))
    data = make_folder(folder.path / "group_data") / f"{record.name}.py"
    if overwrite or not data.exists():
        write(data, group_data(record.rig, settings))


def _literal(value: object) -> str:
    """A Python literal with double quotes, like formatted code."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_literal(key)}: {_literal(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
