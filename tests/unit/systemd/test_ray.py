"""Units of services across hosts: Ray on each of them, and who may call llama.cpp's RPC servers."""

from __future__ import annotations

import pytest

from rigup.node import Network, Node, PeerPort
from rigup.plan import BoundPlan, Build, GpuMemory, Plan
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.service import Service
from rigup.systemd.ray import question
from rigup.systemd.service import unit
from tests.golden.golden import assert_golden
from tests.nodes import unbound
from tests.unit.planner.rules.builder import CATALOGUE

FOLDER = "/opt/rigup/builds/vllm-1-abc"
NODES = tuple(
    Node(host=f"gpu{n}", address=f"192.168.100.{n}", interface="enp1s0f1np1", rdma_devices=("rocep1s0f1",))
    for n in (1, 2)
)
ENGINE = ("bin/vllm", "serve", "/var/lib/rigup/weights/m", "--distributed-executor-backend", "ray")


def on_ray(rank: int, **service: object) -> BoundPlan:
    gpu = GpuMemory(gpu=0, capacity_mib=1, weights_mib=0, kv_cache_mib=0, overhead_mib=0, free_mib=1)
    made = Plan(
        host=NODES[rank].host,
        group="pair",
        verdict="ok",
        rig=read_rig({"gpus": "1x GB10"}, "test", CATALOGUE),
        service=Service.model_validate({"name": "chat", "model": "M", "across_hosts": "ray", **service}),
        build=Build(engine="vllm", version="0.33.0", method="wheel"),
        memory=(gpu,),
        command=ENGINE if rank == 0 else (),
        environment={"VLLM_HOST_IP": NODES[rank].address, "NCCL_IB_HCA": "=rocep1s0f1"},
        served_name="m",
        nodes=NODES,
        rank=rank,
        peer_ports=(PeerPort(rank=0, port=18000, purpose="ray", callers=(1,)),),
        peer_traffic=True,
    )
    return unbound(made)


@pytest.mark.parametrize(("rank", "name"), [(0, "ray-head"), (1, "ray-worker")])
def test_units_are_as_reviewed(rank: int, name: str) -> None:
    assert_golden(f"unit/{name}.service", unit(on_ray(rank), FOLDER))


@pytest.mark.parametrize("rank", [0, 1])
def test_on_a_network_of_others_a_unit_loads_its_firewall_and_takes_it_away(rank: int) -> None:
    plan = on_ray(rank)
    rig = plan.rig.model_copy(update={"network": Network(private=False)})
    lines = unit(plan.model_copy(update={"rig": rig}), FOLDER).splitlines()
    assert_golden(f"unit/firewall-{rank}.txt", "\n".join(line for line in lines if "nft" in line) + "\n")
    assert not any("nft" in line for line in unit(plan, FOLDER).splitlines())


def test_only_the_head_gets_the_api_key_and_only_the_engine_reads_it() -> None:
    head, worker = (unit(on_ray(rank, listen="0.0.0.0"), FOLDER) for rank in (0, 1))
    assert "LoadCredential=api-key:/etc/rigup/services/chat/api-key" in head
    started = next(line for line in head.splitlines() if line.startswith("ExecStart="))
    assert started.index("ray start") < started.index("CREDENTIALS_DIRECTORY") < started.index("bin/vllm")
    assert "api-key" not in worker and "VLLM_API_KEY" not in worker


def test_what_the_user_says_of_the_object_store_counts() -> None:
    name = "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"
    said = on_ray(1).model_copy(update={"environment": {name: "200000000"}})
    assert [line for line in unit(said, FOLDER).splitlines() if name in line] == [f'Environment="{name}=200000000"']


def test_who_is_missing_is_asked_at_the_head() -> None:
    assert question(on_ray(0), FOLDER) == (
        f"{FOLDER}/bin/python",
        "-I",
        "/opt/rigup/programs/ray_node.py",
        "nodes",
        "192.168.100.1:18000",
        "gpu1=192.168.100.1",
        "gpu2=192.168.100.2",
    )


def test_nobody_but_the_head_talks_to_an_rpc_server() -> None:
    peers = (PeerPort(rank=1, port=18000, purpose="rpc", callers=(0,)),)
    update = {
        "build": Build(engine="llama.cpp", version="b1", method="source"),
        "service": Service(name="chat", model="M"),
        "peer_ports": peers,
        "command": ("bin/rpc-server",),
    }

    def said(plan: BoundPlan) -> list[str]:
        return [line for line in unit(plan, FOLDER).splitlines() if line.startswith("IPAddress")]

    head, worker = (on_ray(rank).model_copy(update=update) for rank in (0, 1))
    assert said(worker) == ["IPAddressDeny=any", "IPAddressAllow=localhost 192.168.100.1"]
    assert said(head) == ["IPAddressDeny=any", "IPAddressAllow=localhost 192.168.100.2"]
    for_others = head.model_copy(update={"service": Service(name="chat", model="M", listen="0.0.0.0")})
    assert said(for_others) == []
