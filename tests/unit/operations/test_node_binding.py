"""Which address, interface and RDMA devices each host of a service gets; and what is said where that cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.facts.network import Address, HostNetwork, Interface, RdmaPort
from rigup.node import Network, Node
from rigup.operations.node_binding import bound_nodes
from rigup.plan import Plan
from rigup.rig import Rig
from rigup.service import Service

SAY = 'give the host its own address: ("gpu2", {"lan_address": "192.168.100.10"}), or the rig: rig.network.subnet'


def host(number: int, **fast: object) -> HostNetwork:
    """A host with a link for administration, at which SSH arrives, and a fast one."""
    link = Interface("fast0", True, 9000, 200_000, (Address(f"192.168.100.{number}", 24),))
    return HostNetwork(
        interfaces=(
            Interface("lo", True, 65536, None, (Address("127.0.0.1", 8),)),
            Interface("admin0", True, 1500, 1000, (Address(f"10.0.0.{number}", 24), Address("fe80::1", 64))),
            replace(link, **fast),  # type: ignore[arg-type]
        ),
        rdma=(RdmaPort("roce0", "ACTIVE", "Ethernet", ("fast0",)), RdmaPort("roce1", "DOWN", "Ethernet", ("fast0",))),
        ssh_address=f"10.0.0.{number}",
    )


def plans(subnet: str | None = None) -> tuple[Plan, ...]:
    """A service over two hosts whose command and environment hold what only a probe can tell."""
    rig = Rig(gpus=(), hosts_per_service=2, network=Network(subnet=subnet))
    nodes = (Node(host="gpu1"), Node(host="gpu2"))
    return tuple(
        Plan(
            host=node.host,
            group="pair",
            verdict="ok",
            rig=rig,
            service=Service(name="chat", model="M"),
            command=("vllm", "--master-addr", "{node0.address}"),
            environment={"VLLM_HOST_IP": "{node.address}", "NCCL_IB_HCA": "{node.rdma_devices}"},
            nodes=nodes,
            rank=rank,
        )
        for rank, node in enumerate(nodes)
    )


def test_without_a_word_it_is_the_address_at_which_ssh_arrives() -> None:
    found = bound_nodes(plans(), {"gpu1": host(1), "gpu2": host(2)})
    assert found.refusals == {} and found.warnings == {}
    assert found.plans[1].nodes == (
        Node(host="gpu1", address="10.0.0.1", interface="admin0"),
        Node(host="gpu2", address="10.0.0.2", interface="admin0"),
    )
    assert found.plans[1].command == ("vllm", "--master-addr", "10.0.0.1")
    assert found.plans[1].environment == {"VLLM_HOST_IP": "10.0.0.2"}


def test_the_subnet_of_the_rig_finds_the_fast_link_and_what_is_active_behind_it() -> None:
    found = bound_nodes(plans("192.168.100.0/24"), {"gpu1": host(1), "gpu2": host(2)})
    assert found.plans[0].nodes[1] == Node(
        host="gpu2", address="192.168.100.2", interface="fast0", rdma_devices=("roce0",)
    )
    assert found.plans[0].environment["NCCL_IB_HCA"] == "=roce0"


def test_what_the_inventory_says_goes_before_the_subnet() -> None:
    networks = {"gpu1": host(1), "gpu2": host(2)}
    found = bound_nodes(plans("192.168.100.0/24"), networks, {"gpu1": "10.0.0.1", "gpu2": "10.0.0.2"})
    assert [node.interface for node in found.plans[0].nodes] == ["admin0", "admin0"]


TWO = (Address("192.168.100.2", 24), Address("192.168.100.3", 24))


@pytest.mark.parametrize(
    ("subnet", "said", "second", "message", "hint"),
    [
        (
            "192.168.100.0/24",
            {},
            host(2, addresses=()),
            "none of its addresses is in rig.network.subnet 192.168.100.0/24; it has 10.0.0.2/24 (admin0)",
            "give one of its interfaces an address there, or name another one: lan_address of gpu2",
        ),
        (
            "192.168.100.0/24",
            {},
            host(2, addresses=TWO),
            "more than one of its addresses is in rig.network.subnet 192.168.100.0/24: 192.168.100.2 (fast0) and "
            "192.168.100.3 (fast0)",
            'say which: ("gpu2", {"lan_address": "192.168.100.2"})',
        ),
        (
            "192.168.100.0/24",
            {},
            host(2, up=False),
            "fast0, which has 192.168.100.2, has no link",
            "is the cable in? on the host: ip link show fast0",
        ),
        (
            None,
            {"gpu2": "192.168.100.7"},
            host(2, up=False),
            "lan_address 192.168.100.7 is no address of this host; it has 10.0.0.2/24 (admin0), "
            "192.168.100.2/24 (fast0, no link)",
            "say an address that the host has, or take lan_address away",
        ),
        (
            None,
            {"gpu2": "fd00::7"},
            host(2),
            "lan_address fd00::7 is not IPv4, which engines across hosts are given",
            SAY,
        ),
        (None, {}, replace(host(2), ssh_address=""), "nobody can tell at which address the others reach it", SAY),
        (
            None,
            {},
            replace(host(2), ssh_address="127.0.0.1"),
            "SSH reaches it at 127.0.0.1, where no other host does",
            SAY,
        ),
        (None, {}, replace(host(2), ssh_address="fd00::2"), "SSH reaches it at fd00::2, which is not IPv4", SAY),
        (
            None,
            {},
            HostNetwork(error="sh: 1: ip: not found"),
            "its interfaces could not be read: sh: 1: ip: not found",
            "is iproute2 installed there?",
        ),
        (None, {}, host(1), "10.0.0.1 is the address of gpu1 too", SAY),
    ],
    ids=["outside", "two", "no link", "not its own", "IPv6 said", "no SSH", "loopback", "IPv6", "no ip", "twice"],
)
def test_what_cannot_be_told_is_refused_with_what_was_found(
    subnet: str | None, said: dict[str, str], second: HostNetwork, message: str, hint: str
) -> None:
    unbound = plans(subnet)
    found = bound_nodes(unbound, {"gpu1": host(1), "gpu2": second}, said)
    assert found.plans == unbound
    assert {name: [(each.message, each.hint) for each in each] for name, each in found.refusals.items()} == {
        "gpu2": [(message, hint)]
    }


def test_links_that_differ_are_told_once() -> None:
    second = replace(host(2, mtu=1500, speed_mbits=100_000), rdma=())
    found = bound_nodes(plans("192.168.100.0/24"), {"gpu1": host(1), "gpu2": second})
    assert found.refusals == {}
    assert {name: [each.message for each in each] for name, each in found.warnings.items()} == {
        "gpu1": [
            "the MTU differs between the hosts: gpu1 9000, gpu2 1500",
            "the speed of the links differs: gpu1 200000 Mb/s, gpu2 100000 Mb/s",
            "active RDMA devices: gpu1 roce0, gpu2 none",
        ]
    }
