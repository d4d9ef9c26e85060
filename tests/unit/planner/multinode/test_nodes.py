"""What a probe told of the hosts of a service, put into its commands."""

from __future__ import annotations

import pytest

from rigup.node import Node
from rigup.plan import Plan
from rigup.planner.multinode.nodes import NodeCommand, addressed, named
from rigup.rig import Rig
from rigup.service import Service

FIRST = Node(host="gpu1", address="10.0.0.1", interface="enp1s0", rdma_devices=("mlx5_0", "mlx5_1"))
SECOND = Node(host="gpu2", address="10.0.0.2", interface="enp9s0")
ENVIRONMENT = {
    "NCCL_IB_HCA": "{node.rdma_devices}",
    "NCCL_SOCKET_IFNAME": "{node.interface}",
    "PLAIN": "",
    "VLLM_HOST_IP": "{node.address}",
}


def plan(rank: int, *command: str) -> Plan:
    return Plan(
        host=f"gpu{rank + 1}",
        group="pair",
        verdict="ok",
        rig=Rig(gpus=()),
        service=Service(name="chat", model="m"),
        command=command or ("bin/vllm", "--master-addr", "{node0.address}", "--rpc", "{node1.address}:18000"),
        environment=ENVIRONMENT,
        nodes=(Node(host="gpu1"), Node(host="gpu2")),
        rank=rank,
    )


def test_every_token_is_replaced_by_what_the_probe_told() -> None:
    bound = addressed(plan(0), (FIRST, SECOND))
    assert bound.command == ("bin/vllm", "--master-addr", "10.0.0.1", "--rpc", "10.0.0.2:18000")
    assert bound.environment == {
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
        "NCCL_SOCKET_IFNAME": "enp1s0",
        "PLAIN": "",
        "VLLM_HOST_IP": "10.0.0.1",
    }


def test_a_variable_without_a_value_is_left_out() -> None:
    bound = addressed(plan(1), (FIRST, SECOND))
    assert bound.environment == {"NCCL_SOCKET_IFNAME": "enp9s0", "PLAIN": "", "VLLM_HOST_IP": "10.0.0.2"}


def test_an_ipv6_address_before_a_port_is_in_brackets() -> None:
    nodes = (Node(host="gpu1", address="fd00::1"), Node(host="gpu2", address="fd00::2"))
    bound = addressed(plan(0, "x", "{node0.address}", "{node0.address}:1,{node1.address}:2"), nodes)
    assert bound.command == ("x", "fd00::1", "[fd00::1]:1,[fd00::2]:2")


def test_before_any_probe_hosts_are_named_as_the_inventory_has_them() -> None:
    shown = named(plan(1))
    assert shown.command == ("bin/vllm", "--master-addr", "gpu1", "--rpc", "gpu2:18000")
    assert shown.environment["NCCL_IB_HCA"] == "<RDMA devices, by probe>"
    assert shown.environment["NCCL_SOCKET_IFNAME"] == "<interface, by probe>"
    assert shown.environment["VLLM_HOST_IP"] == "gpu2"


def test_a_plan_for_one_host_stays_as_it_is() -> None:
    alone = plan(0, "bin/vllm", "--chat-template", "{node.address}").model_copy(update={"nodes": ()})
    assert addressed(alone, ()) == named(alone) == NodeCommand(alone.command, alone.environment)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((FIRST,), "gpu1: these are not the hosts of the plan"),
        ((SECOND, FIRST), "gpu1: these are not the hosts of the plan"),
        ((FIRST, Node(host="gpu2")), "gpu1: no address for gpu2"),
    ],
)
def test_other_nodes_than_the_plans_are_not_taken(nodes: tuple[Node, ...], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        addressed(plan(0), nodes)
    assert str(caught.value) == message
