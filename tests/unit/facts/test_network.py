"""What the script that asks a host for its network prints, taken apart; and the script itself, run here."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from rigup.facts.bounds import Unreadable
from rigup.facts.network import Address, HostNetwork, Interface, NetworkOfHost, RdmaPort, parse
from rigup.node import Node

UP, NO_LINK = ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"], ["NO-CARRIER", "BROADCAST", "MULTICAST", "UP"]


def link(name: str, *addresses: str, up: bool = True, mtu: int = 1500) -> dict[str, object]:
    """An interface as `ip -json addr` lists it, with the keys that count."""
    held = [dict(zip(("local", "prefixlen"), each.split("/"), strict=True)) for each in addresses]
    listed = [{"family": "inet6" if ":" in str(each["local"]) else "inet", **each} for each in held]
    state = "UP" if up else "DOWN"
    return {"ifname": name, "flags": UP if up else NO_LINK, "mtu": mtu, "operstate": state, "addr_info": listed}


# A DGX Spark with one cable in the outer of its two QSFP ports: each port is two network interfaces and two RDMA
# devices, one for each of the PCIe links behind it. Names and states as NVIDIA prints them, `ibdev2netdev` in
# https://build.nvidia.com/spark/connect-two-sparks/stacked-sparks.md (read 2026-11-21); that the interface with the
# address is enp1s0f1np1, and enP7s7 the one for administration, is from the same pages.
SPARK_LINKS = [
    {
        "ifname": "lo",
        "flags": ["LOOPBACK", "UP", "LOWER_UP"],
        "mtu": 65536,
        "operstate": "UNKNOWN",
        "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}],
    },
    link("enP7s7", "192.168.1.20/24"),
    link("enp1s0f0np0", up=False),
    link("enp1s0f1np1", "192.168.100.10/24", "fe80::3e6d:66ff:fecc:b3b7/64", mtu=9000),
    link("enP2p1s0f0np0", up=False),
    link("enP2p1s0f1np1", mtu=9000),
]
SPARK = f"""\
ssh 192.168.1.5 50122 192.168.1.20 22
addresses {json.dumps(SPARK_LINKS)}
speed enP7s7 1000
speed enp1s0f0np0 -1
speed enp1s0f1np1 200000
speed enP2p1s0f0np0 -1
speed enP2p1s0f1np1 200000
speed lo
rdma roceP2p1s0f0 1 Ethernet 1: DOWN
behind roceP2p1s0f0 enP2p1s0f0np0 0
rdma roceP2p1s0f1 1 Ethernet 4: ACTIVE
gid roceP2p1s0f1 1 enP2p1s0f1np1
behind roceP2p1s0f1 enP2p1s0f1np1 0
rdma rocep1s0f0 1 Ethernet 1: DOWN
behind rocep1s0f0 enp1s0f0np0 0
rdma rocep1s0f1 1 Ethernet 4: ACTIVE
gid rocep1s0f1 1 enp1s0f1np1
behind rocep1s0f1 enp1s0f1np1 0
""".splitlines()


def test_a_dgx_spark() -> None:
    network = parse(SPARK)
    assert network == HostNetwork(
        interfaces=(
            Interface("lo", True, 65536, None, (Address("127.0.0.1", 8),)),
            Interface("enP7s7", True, 1500, 1000, (Address("192.168.1.20", 24),)),
            Interface("enp1s0f0np0", False, 1500, None),
            Interface(
                "enp1s0f1np1",
                True,
                9000,
                200_000,
                (Address("192.168.100.10", 24), Address("fe80::3e6d:66ff:fecc:b3b7", 64)),
            ),
            Interface("enP2p1s0f0np0", False, 1500, None),
            Interface("enP2p1s0f1np1", True, 9000, 200_000),
        ),
        rdma=(
            RdmaPort("roceP2p1s0f0", "DOWN", "Ethernet", ("enP2p1s0f0np0",)),
            RdmaPort("roceP2p1s0f1", "ACTIVE", "Ethernet", ("enP2p1s0f1np1",)),
            RdmaPort("rocep1s0f0", "DOWN", "Ethernet", ("enp1s0f0np0",)),
            RdmaPort("rocep1s0f1", "ACTIVE", "Ethernet", ("enp1s0f1np1",)),
        ),
        ssh_address="192.168.1.20",
    )
    assert network.rdma_devices("enp1s0f1np1") == ("rocep1s0f1",)
    assert network.rdma_devices("enp1s0f0np0") == ()
    assert network.rdma_devices("enP7s7") == ()


def test_ports_of_one_device_are_told_apart_and_a_vlan_is_known_by_its_gid() -> None:
    lines = [
        "ssh ",
        f"addresses {json.dumps([link('eth4'), link('eth5'), link('eth5.7', '10.0.7.1/24')])}",
        "rdma mlx4_0 1 Ethernet 4: ACTIVE",
        "gid mlx4_0 1 eth4",
        "behind mlx4_0 eth4 0",
        "behind mlx4_0 eth5 1",
        "rdma mlx4_0 2 Ethernet 4: ACTIVE",
        "gid mlx4_0 2 eth5",
        "gid mlx4_0 2 eth5.7",
        "behind mlx4_0 eth4 0",
        "behind mlx4_0 eth5 1",
        "rdma mlx5_1 1 InfiniBand 2: INIT",
        "behind mlx5_1 ib0 0",
    ]
    network = parse(lines)
    assert [(port.name, port.interfaces) for port in network.rdma] == [
        ("mlx4_0:1", ("eth4",)),
        ("mlx4_0:2", ("eth5", "eth5.7")),
        ("mlx5_1", ("ib0",)),
    ]
    assert network.rdma_devices("eth5.7") == ("mlx4_0:2",)
    assert network.rdma_devices("ib0") == ()
    assert network.ssh_address == ""


def test_what_is_not_a_list_of_interfaces_is_kept_as_the_reason() -> None:
    assert parse(["ssh ", "addresses sh: 1: ip: not found"]).error == "sh: 1: ip: not found"
    assert parse([]).error == "the list of interfaces is missing"


@pytest.mark.parametrize("kept", [True, False])
def test_the_script_says_what_ssh_and_the_kernel_know_also_where_sudo_forgot_it(kept: bool) -> None:
    command = NetworkOfHost().command()
    words = ["sh", "-c", command] if kept else ["sh", "-c", 'env -u SSH_CONNECTION sh -c "$0"; true', command]
    environment = {**os.environ, "SSH_CONNECTION": "192.0.2.1 4242 192.0.2.9 22"}
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    network = parse(said.stdout.splitlines())
    assert network.ssh_address == "192.0.2.9"
    loopback = network.holder("127.0.0.1")
    assert loopback is not None and loopback.name == "lo" and loopback.addresses[0] == Address("127.0.0.1", 8)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.5%} accept; add rule inet filter input accept; #",
        "fe80::1%eth0",
        "10.0.0.5/0",
        "0.0.0.0/0",
        "010.0.0.5",
        "10.0.0.5 ",
        "",
    ],
)
def test_an_address_is_one_and_nothing_beside_it(address: str) -> None:
    """Other hosts of the service are given it: in commands, and in the rules of their firewall."""
    links = [{"ifname": "eth0", "addr_info": [{"local": address, "prefixlen": 24}]}]
    with pytest.raises(Unreadable, match=" an address"):
        parse([f"addresses {json.dumps(links)}"])


@pytest.mark.parametrize("address", ["10.0.0.5%} accept", "10.0.0.5 accept", "10.0.0.5\nx", "{node.address}"])
def test_a_node_has_no_other_address_either(address: str) -> None:
    with pytest.raises(ValueError):
        Node(host="gpu1", address=address)
