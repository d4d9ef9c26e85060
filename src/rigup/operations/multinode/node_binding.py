"""Finds the addresses, interfaces and RDMA devices of the hosts that a service spans, from their probes. Pure.

A plan is made offline, without addresses. This module alone decides which address the other hosts use: the inventory's
lan_address, else the one in the rig's subnet, else the one that SSH uses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rigup.facts.network import HostNetwork, Interface
from rigup.node import Network, Node
from rigup.plan import Finding, Plan

SAY = 'set the host\'s address: ("%s", {"lan_address": "192.168.100.10"}), or rig.network.subnet'


@dataclass(frozen=True)
class NodeBinding:
    """The bound hosts of one service. nodes: by rank, () if there are refusals.

    refusals, warnings: by host; a warning about several hosts belongs to the first.
    """

    nodes: tuple[Node, ...] = ()
    refusals: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    warnings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)


def bind_nodes(
    plan: Plan, networks: Mapping[str, HostNetwork], lan_addresses: Mapping[str, str] | None = None
) -> NodeBinding:
    """Binds the hosts of a service to their addresses. plan: of any of them.

    networks: by host, for all of them. lan_addresses: from the inventory, by host.
    """
    nodes: list[Node] = []
    refusals: dict[str, tuple[Finding, ...]] = {}
    for node in plan.nodes:
        lan_address = (lan_addresses or {}).get(node.host)
        found = _node(node.host, networks[node.host], plan.rig.network, lan_address)
        if isinstance(found, Finding):
            refusals[node.host] = (found,)
        else:
            nodes.append(found)
    refusals |= _shared(nodes)
    if refusals:
        return NodeBinding(refusals=refusals)
    return NodeBinding(tuple(nodes), warnings=_unlike(tuple(nodes), networks))


def _node(host: str, network: HostNetwork, wanted: Network, lan_address: str | None) -> Node | Finding:
    if network.error:
        return _finding("cannot read its network interfaces: " + network.error, hint="install iproute2 on the host")
    found = _address(host, network, wanted, lan_address)
    if isinstance(found, Finding):
        return found
    holder = network.holder(found)
    assert holder is not None
    if not holder.up:
        return _finding(
            f"{holder.name}, which has {found}, has no link",
            hint=f"check the cable; on the host: ip link show {holder.name}",
        )
    return Node(host=host, address=found, interface=holder.name, rdma_devices=network.rdma_devices(holder.name))


def _address(host: str, network: HostNetwork, wanted: Network, lan_address: str | None) -> str | Finding:
    if lan_address is not None and ":" in lan_address:
        return _finding(
            f"lan_address {lan_address} is not an IPv4 address, which engines across hosts need", hint=SAY % host
        )
    if lan_address is not None:
        return _held(
            network, lan_address, f"lan_address {lan_address}", hint="set an address of the host, or remove lan_address"
        )
    if wanted.subnet is not None:
        return _in_subnet(host, network, wanted.subnet)
    ssh = network.ssh_address.partition("%")[0].removeprefix("::ffff:")
    if not ssh:
        return _finding("its address for the other hosts is unknown", hint=SAY % host)
    try:
        address = ipaddress.IPv4Address(ssh)
    except ValueError:
        return _finding(f"SSH reaches it at {ssh}, which is not an IPv4 address", hint=SAY % host)
    if address.is_loopback:
        return _finding(f"SSH reaches it at {ssh}, which other hosts cannot reach", hint=SAY % host)
    return _held(network, ssh, f"SSH reaches it at {ssh}, which", hint=SAY % host)


def _held(network: HostNetwork, address: str, what: str, *, hint: str) -> str | Finding:
    if network.holder(address) is not None:
        return address
    return _finding(f"{what} is not an address of this host; it has {_all(network)}", hint=hint)


def _in_subnet(host: str, network: HostNetwork, subnet: str) -> str | Finding:
    net = ipaddress.ip_network(subnet, strict=False)
    there = [
        (each, address.address)
        for each in network.interfaces
        for address in each.addresses
        if ipaddress.ip_address(address.address.partition("%")[0]) in net
    ]
    if not there:
        return _finding(
            f"none of its addresses is in rig.network.subnet {subnet}; it has {_all(network)}",
            hint=f"add an address in that subnet, or set lan_address of {host}",
        )
    if len(there) > 1:
        listed = " and ".join(f"{address} ({each.name})" for each, address in there)
        return _finding(
            f"more than one of its addresses is in rig.network.subnet {subnet}: {listed}",
            hint=f'choose one: ("{host}", {{"lan_address": "{there[0][1]}"}})',
        )
    return there[0][1]


def _all(network: HostNetwork) -> str:
    """Every address that other hosts could use, with its interface."""
    return ", ".join(filter(None, (_shown(each) for each in network.interfaces))) or "none"


def _shown(interface: Interface) -> str:
    listed = [
        str(address)
        for address in interface.addresses
        if not (ip := ipaddress.ip_address(address.address.partition("%")[0])).is_loopback
        and not (ip.version == 6 and ip.is_link_local)
    ]
    link = "" if interface.up else ", no link"
    return f"{' '.join(listed)} ({interface.name}{link})" if listed else ""


def _shared(nodes: list[Node]) -> dict[str, tuple[Finding, ...]]:
    """Refusals for hosts that have the same address as a host before them."""
    first: dict[str, str] = {}
    found: dict[str, tuple[Finding, ...]] = {}
    for node in nodes:
        other = first.setdefault(node.address, node.host)
        if other != node.host:
            found[node.host] = (_finding(f"{node.address} is also the address of {other}", hint=SAY % node.host),)
    return found


def _unlike(nodes: tuple[Node, ...], networks: Mapping[str, HostNetwork]) -> dict[str, tuple[Finding, ...]]:
    """Warnings about differences between the hosts' links."""
    links = {node.host: networks[node.host].holder(node.address) or Interface("") for node in nodes}

    def per_host(value: Callable[[Node], object], unit: str = "") -> str:
        return ", ".join(f"{node.host} {value(node) or 'none'}{unit}" for node in nodes)

    found = []
    if len({link.mtu for link in links.values()}) > 1:
        message = f"the MTU differs between the hosts: {per_host(lambda node: links[node.host].mtu)}"
        found.append(_finding(message, hint="set the same MTU on all hosts; large packets are lost otherwise"))
    if len({link.speed_mbits for link in links.values() if link.speed_mbits}) > 1:
        message = f"the speed of the links differs: {per_host(lambda node: links[node.host].speed_mbits, ' Mb/s')}"
        found.append(_finding(message, hint="use links of equal speed; the slowest limits all hosts"))
    if len({bool(node.rdma_devices) for node in nodes}) > 1:
        message = f"active RDMA devices: {per_host(lambda node: ' '.join(node.rdma_devices))}"
        found.append(_finding(message, hint="enable RDMA on all hosts or on none"))
    return {nodes[0].host: tuple(found)} if found else {}


def _finding(message: str, *, hint: str) -> Finding:
    return Finding(rule="host-network", message=message, hint=hint)
