"""The fleets that noop.py times: lab machines with simulated GPUs, and the same again for Ansible, as a playbook."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.lab.machine import Machine
from rigup.programs import program_file
from tests.lab.gpu_fleet import OLD, RIG, GpuFleet

CONFIGURATION = (
    "/etc/apt/preferences.d/00-rigup-nvidia-driver",
    "/etc/apt/preferences.d/00-rigup-cuda-toolkit",
    "/etc/apt/apt.conf.d/52rigup-nvidia",
    "/etc/apt/sources.list.d/nvidia-cuda.sources",
    "/etc/modprobe.d/rigup-nouveau.conf",
    "/etc/systemd/system/rigup-chat.service",
)
# Says on standard error what a command took: wall and processor time in s, MiB. A process of its own, since a child's
# largest size counts from what its parent had when it began.
SPENT = """
import resource, subprocess, sys, time
began = time.perf_counter()
code = subprocess.call(sys.argv[1:])
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(time.perf_counter() - began, spent.ru_utime + spent.ru_stime, spent.ru_maxrss / 1024, file=sys.stderr)
sys.exit(code)
"""
PACKAGES = ("ca-certificates", "curl", "python3", "libgomp1")


def describe(fleet: GpuFleet, hosts: list[tuple[str, dict[str, Any]]], gpus: bool = True) -> None:
    """Writes the fleet's files: these hosts, all of them with the same rig and service. gpus: whether they have any."""
    if gpus:
        fleet.describe_gpus(OLD, {"power_limit_w": 300})
    else:
        fleet.describe()
    (fleet.root / "inventories/rehearsal.py").write_text(f"boxes = {hosts!r}\n")


def through(machine: Machine, name: str, port: int, folder: Path) -> tuple[str, dict[str, Any]]:
    """A host of the inventory that is this machine behind a port of 127.0.0.1."""
    _, data = machine.inventory
    known = folder / f"known_hosts_{port}"
    key = Path(str(data["ssh_known_hosts_file"])).read_text().splitlines()[0].split(" ", 1)[1]
    known.write_text(f"[127.0.0.1]:{port} {key}\n")
    return name, {**data, "ssh_hostname": "127.0.0.1", "ssh_port": port, "ssh_known_hosts_file": str(known)}


def ssh_words(host: tuple[str, dict[str, Any]]) -> list[str]:
    """ssh to a host of the inventory, as rigup reaches it."""
    data = host[1]
    options = (
        f"UserKnownHostsFile={data['ssh_known_hosts_file']}",
        f"IdentityFile={data['ssh_key']}",
        f"Port={data.get('ssh_port', 22)}",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
    )
    words = ["ssh", "-F", "/dev/null", *(word for option in options for word in ("-o", option))]
    return [*words, f"{data['ssh_user']}@{data['ssh_hostname']}"]


def playbook(folder: Path, fleet: GpuFleet, hosts: list[tuple[str, dict[str, Any]]]) -> Path:
    """The same state as tasks of Ansible's: what is on the first host now, so that nothing is left to do."""
    files = folder / "files"
    files.mkdir(exist_ok=True)
    tasks: list[dict[str, Any]] = [
        {"apt": {"name": list(PACKAGES), "state": "present"}},
        {"user": {"name": layout.WORKER_USER, "system": True, "create_home": False}},
    ]
    roots = (layout.BUILDS, layout.PROGRAMS, layout.WEIGHTS, f"{layout.CONFIGURATION}/services")
    tasks += [{"file": {"path": path, "state": "directory", "mode": "0755"}} for path in roots]
    for program in fleet.host.tell(f"ls {layout.PROGRAMS}").split():
        source = program_file(program)
        tasks.append({"copy": {"src": str(source), "dest": f"{layout.PROGRAMS}/{program}", "mode": "0644"}})
    for path in CONFIGURATION:
        (files / Path(path).name).write_text(fleet.host.machine.ssh(f"cat {path}").stdout)
        tasks.append({"copy": {"src": str(files / Path(path).name), "dest": path, "mode": "0644"}})
    driver = sorted(fleet.installed())
    build = fleet.host.tell(f"ls -d {layout.BUILDS}/*/manifest.json")
    weights = fleet.host.tell(f"ls -d {layout.WEIGHTS}/*/*/*/.rigup-receipt.json")
    tasks += [
        {"apt": {"name": driver, "state": "present"}},
        {"command": "cat /proc/driver/nvidia/version", "changed_when": False},
        {"systemd": {"name": "nvidia-persistenced", "enabled": True, "state": "started"}},
        {"command": "nvidia-smi --query-gpu=power.limit --format=csv,noheader", "changed_when": False},
        {"stat": {"path": build}},
        {"stat": {"path": weights}},
        {"systemd": {"name": "rigup-chat", "enabled": True, "state": "started"}},
        {
            "uri": {
                "url": "http://127.0.0.1:8000/v1/chat/completions",
                "method": "POST",
                "body_format": "json",
                "body": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1},
            }
        },
    ]
    book = folder / "site.yml"
    play = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    book.write_text(json.dumps(play))  # which is YAML
    ansible_settings(folder, hosts)
    return book


def ansible_settings(folder: Path, hosts: list[tuple[str, dict[str, Any]]]) -> None:
    """Writes hosts.ini and ansible.cfg for these hosts: connections are kept, modules piped, all hosts side by side."""
    lines = []
    for name, data in hosts:
        arguments = shlex.quote(
            f"-o UserKnownHostsFile={data['ssh_known_hosts_file']} -o ControlMaster=auto -o ControlPersist=60s"
        )
        lines.append(
            f"{name} ansible_host={data['ssh_hostname']} ansible_port={data.get('ssh_port', 22)} "
            f"ansible_user={data['ssh_user']} ansible_ssh_private_key_file={data['ssh_key']} "
            f"ansible_ssh_common_args={arguments} ansible_python_interpreter=/usr/bin/python3"
        )
    (folder / "hosts.ini").write_text("\n".join(lines) + "\n")
    (folder / "ansible.cfg").write_text(
        f"[defaults]\nforks = {max(5, len(hosts))}\nretry_files_enabled = False\n[ssh_connection]\npipelining = True\n"
        "[connection]\npipelining = True\n"
    )


def ansible(cache: Path, version: str) -> Path:
    """ansible-playbook of this version, from an environment of its own that is made once."""
    folder = cache / f"ansible-core-{version}"
    if not (folder / "bin/ansible-playbook").exists():
        subprocess.run(["python3", "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", f"ansible-core=={version}"], check=True)
    return folder / "bin/ansible-playbook"


__all__ = ["RIG", "ansible", "ansible_settings", "describe", "playbook", "ssh_words", "through"]
