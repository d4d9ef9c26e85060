"""What first_apply.py times, by other executors: the same roles by pyinfra, an equivalent playbook by Ansible."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

from benchmarks import noop_fleet
from rigup import layout
from rigup.cache import cache_folder
from rigup.catalogue.catalogue import load_catalogue
from rigup.lab.hub.server_process import StandInHub
from rigup.lock import load_lock
from rigup.plan import Build, Checkpoint, Plan
from rigup.project.inventory import LOCK, HostEntry
from rigup.project.planning import plan_host
from rigup.sources.archives import fetch_source
from rigup.toolkit import toolkit_root
from tests.lab.fleet import Fleet

ANSIBLE = "2.19.14"
SERVES_S = 600
UNIT = """[Service]
DynamicUser=yes
ExecStart={command}
Environment=HOME=/tmp
[Install]
WantedBy=multi-user.target
"""


def pyinfra(fleet: Fleet) -> tuple[str, ...]:
    """The pyinfra command line for the same roles, without showing the changes first."""
    for name in ("deploy", "roles"):
        (fleet.root / name).symlink_to(toolkit_root() / name)
    return (sys.executable, "-m", "pyinfra", "inventories/rehearsal.py", "deploy/site.py", "-y")


def ansible(fleet: Fleet) -> tuple[str, ...]:
    """ansible-playbook for what the first host's plan says: packages, user, compile, weights, service, answer."""
    folder = fleet.root / "ansible"
    folder.mkdir()
    (plan,) = plans(fleet)
    assert plan.build and plan.checkpoint
    hosts = [host.machine.inventory for host in fleet.hosts]
    noop_fleet.ansible_settings(folder, hosts)
    source = load_lock(toolkit_root() / LOCK).source(plan.build.engine, plan.build.version)
    assert source
    archive = fetch_source(source, fleet.cache / "rigup/sources", lambda done, total: None)
    tasks = [*compiling(plan.build, archive, folder), *serving(plan, plan.checkpoint, fleet.hub, folder)]
    (folder / "site.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    program = noop_fleet.ansible(cache_folder() / "benchmarks", ANSIBLE)
    return ("env", f"ANSIBLE_CONFIG={folder / 'ansible.cfg'}", f"ANSIBLE_HOME={folder}", str(program), "-i",
            str(folder / "hosts.ini"), str(folder / "site.yml"))  # fmt: skip


def plans(fleet: Fleet) -> tuple[Plan, ...]:
    """What the fleet's folder says its first host is to serve."""
    data = {
        key: value for key, value in runpy.run_path(str(fleet.root / "group_data/boxes.py")).items() if key[0] != "_"
    }
    entry = HostEntry(fleet.host.name, "boxes", data, dict.fromkeys(data, "group_data/boxes.py"))
    return plan_host(entry, load_catalogue(), load_lock(toolkit_root() / LOCK))


def compiling(build: Build, archive: Path, folder: Path) -> list[dict[str, object]]:
    """Tasks that make the build."""
    work = "/opt/engine"
    (folder / "included.cmake").write_text(build.cmake)
    configure = ["cmake", "-S", f"{work}/{build.root}", "-B", f"{work}/build", "-G", "Ninja", *build.flags]
    compile_it = ["cmake", "--build", f"{work}/build", "--target", *build.targets]
    return [
        {"apt": {"name": [*noop_fleet.PACKAGES, *build.packages, *build.runtime_packages], "update_cache": True}},
        {"user": {"name": layout.WORKER_USER, "system": True, "create_home": False}},
        {"file": {"path": work, "state": "directory", "owner": layout.WORKER_USER}},
        {"unarchive": {"src": str(archive), "dest": work}},
        {"copy": {"src": str(folder / "included.cmake"), "dest": f"{work}/included.cmake"}},
        {"command": {"argv": [*configure, f"-DCMAKE_PROJECT_INCLUDE={work}/included.cmake"]}},
        {"command": {"argv": compile_it}},
    ]


def serving(plan: Plan, checkpoint: Checkpoint, hub: StandInHub, folder: Path) -> list[dict[str, object]]:
    """Tasks that fetch the weights, start the service and wait for its answer."""
    weights = layout.weights_folder(checkpoint.repo, str(checkpoint.revision))
    command = " ".join(["/opt/engine/build/" + plan.command[0], *plan.command[1:]])
    (folder / "engine.service").write_text(UNIT.format(command=command))
    question = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
    ask = {
        "url": "http://127.0.0.1:8000/v1/chat/completions",
        "method": "POST",
        "body_format": "json",
        "body": question,
    }
    return [
        {"file": {"path": weights, "state": "directory"}},
        *(
            dict[str, object](
                get_url={
                    "url": f"{hub.url}/{checkpoint.repo}/resolve/{checkpoint.revision}/{file.path}",
                    "dest": f"{weights}/{file.path}",
                    "checksum": f"sha256:{file.sha256}",
                    "timeout": SERVES_S,
                }
            )
            for file in checkpoint.files
        ),
        {"copy": {"src": str(folder / "engine.service"), "dest": "/etc/systemd/system/engine.service"}},
        {"systemd": {"name": "engine", "state": "started", "daemon_reload": True}},
        {"uri": ask, "register": "answer", "until": "answer.status == 200", "retries": 60, "delay": 1},
    ]


def run(fleet: Fleet, words: tuple[str, ...], seconds: float) -> None:
    """Runs one of these to its end, which must be good."""
    log = fleet.root / "others.log"
    with log.open("w") as output:
        done = subprocess.run(
            words,
            cwd=fleet.root,
            env={**os.environ, "XDG_CACHE_HOME": str(fleet.cache)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=seconds,
        )
    if done.returncode:
        raise SystemExit(f"{words[0]}: exit status {done.returncode}\n{log.read_text()[-4000:]}")
