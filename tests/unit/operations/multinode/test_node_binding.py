"""Which address, interface and RDMA devices each host of a service gets; and what is said where that cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.facts.network import Address, HostNetwork, Interface, RdmaPort
from rigup.node import Network, Node
from rigup.operations.multinode.node_binding import bind_nodes
from rigup.plan import Plan
from rigup.rig import Rig
from rigup.service import Service

SAY = 'set the host\'s address: ("gpu2", {"lan_address": "192.168.100.10"}), or rig.network.subnet'


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


def plan(subnet: str | None = None) -> Plan:
    """Of a service over two hosts."""
    return Plan(
        host="gpu1",
        group="pair",
        verdict="ok",
        rig=Rig(gpus=(), hosts_per_service=2, network=Network(subnet=subnet)),
        service=Service(name="chat", model="M"),
        nodes=(Node(host="gpu1"), Node(host="gpu2")),
    )


def test_without_a_word_it_is_the_address_at_which_ssh_arrives() -> None:
    found = bind_nodes(plan(), {"gpu1": host(1), "gpu2": host(2)})
    assert found.refusals == {} and found.warnings == {}
    assert found.nodes == (
        Node(host="gpu1", address="10.0.0.1", interface="admin0"),
        Node(host="gpu2", address="10.0.0.2", interface="admin0"),
    )


def test_the_subnet_of_the_rig_finds_the_fast_link_and_what_is_active_behind_it() -> None:
    found = bind_nodes(plan("192.168.100.0/24"), {"gpu1": host(1), "gpu2": host(2)})
    assert found.nodes[1] == Node(host="gpu2", address="192.168.100.2", interface="fast0", rdma_devices=("roce0",))


def test_what_the_inventory_says_goes_before_the_subnet() -> None:
    networks = {"gpu1": host(1), "gpu2": host(2)}
    found = bind_nodes(plan("192.168.100.0/24"), networks, {"gpu1": "10.0.0.1", "gpu2": "10.0.0.2"})
    assert [node.interface for node in found.nodes] == ["admin0", "admin0"]


TWO = (Address("192.168.100.2", 24), Address("192.168.100.3", 24))


@pytest.mark.parametrize(
    ("subnet", "said", "second", "message", "hint"),
    [
        (
            "192.168.100.0/24",
            {},
            host(2, addresses=()),
            "none of its addresses is in rig.network.subnet 192.168.100.0/24; it has 10.0.0.2/24 (admin0)",
            "add an address in that subnet, or set lan_address of gpu2",
        ),
        (
            "192.168.100.0/24",
            {},
            host(2, addresses=TWO),
            "more than one of its addresses is in rig.network.subnet 192.168.100.0/24: 192.168.100.2 (fast0) and "
            "192.168.100.3 (fast0)",
            'choose one: ("gpu2", {"lan_address": "192.168.100.2"})',
        ),
        (
            "192.168.100.0/24",
            {},
            host(2, up=False),
            "fast0, which has 192.168.100.2, has no link",
            "check the cable; on the host: ip link show fast0",
        ),
        (
            None,
            {"gpu2": "192.168.100.7"},
            host(2, up=False),
            "lan_address 192.168.100.7 is not an address of this host; it has 10.0.0.2/24 (admin0), "
            "192.168.100.2/24 (fast0, no link)",
            "set an address of the host, or remove lan_address",
        ),
        (
            None,
            {"gpu2": "fd00::7"},
            host(2),
            "lan_address fd00::7 is not an IPv4 address, which engines across hosts need",
            SAY,
        ),
        (None, {}, replace(host(2), ssh_address=""), "its address for the other hosts is unknown", SAY),
        (
            None,
            {},
            replace(host(2), ssh_address="127.0.0.1"),
            "SSH reaches it at 127.0.0.1, which other hosts cannot reach",
            SAY,
        ),
        (
            None,
            {},
            replace(host(2), ssh_address="fd00::2"),
            "SSH reaches it at fd00::2, which is not an IPv4 address",
            SAY,
        ),
        (
            None,
            {},
            HostNetwork(error="sh: 1: ip: not found"),
            "cannot read its network interfaces: sh: 1: ip: not found",
            "install iproute2 on the host",
        ),
        (None, {}, host(1), "10.0.0.1 is also the address of gpu1", SAY),
    ],
    ids=["outside", "two", "no link", "not its own", "IPv6 said", "no SSH", "loopback", "IPv6", "no ip", "twice"],
)
def test_what_cannot_be_told_is_refused_with_what_was_found(
    subnet: str | None, said: dict[str, str], second: HostNetwork, message: str, hint: str
) -> None:
    found = bind_nodes(plan(subnet), {"gpu1": host(1), "gpu2": second}, said)
    assert found.nodes == ()
    assert {name: [(each.message, each.hint) for each in each] for name, each in found.refusals.items()} == {
        "gpu2": [(message, hint)]
    }


def test_links_that_differ_are_told_once() -> None:
    second = replace(host(2, mtu=1500, speed_mbits=100_000), rdma=())
    found = bind_nodes(plan("192.168.100.0/24"), {"gpu1": host(1), "gpu2": second})
    assert found.refusals == {}
    assert {name: [each.message for each in each] for name, each in found.warnings.items()} == {
        "gpu1": [
            "the MTU differs between the hosts: gpu1 9000, gpu2 1500",
            "the speed of the links differs: gpu1 200000 Mb/s, gpu2 100000 Mb/s",
            "active RDMA devices: gpu1 roce0, gpu2 none",
        ]
    }
