"""From the hosts that a service spans to their addresses, interfaces and RDMA devices, as a probe found them. Pure.

A plan is made offline, where nobody knows them. Which address of a host the others use is decided here and nowhere
else: the one that the inventory gives it, else the one in the rig's subnet, else the one at which SSH reaches it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rigup.facts.network import HostNetwork, Interface
from rigup.node import Network, Node
from rigup.plan import Finding, Plan
from rigup.planner.nodes import addressed

SAY = 'give the host its own address: ("%s", {"lan_address": "192.168.100.10"}), or the rig: rig.network.subnet'


@dataclass(frozen=True)
class Binding:
    """What became of the plans of one service. plans: as they were where anything is refused.

    refusals, warnings: by host; of a warning that is of several hosts, the first.
    """

    plans: tuple[Plan, ...]
    refusals: dict[str, tuple[Finding, ...]] = field(default_factory=dict)
    warnings: dict[str, tuple[Finding, ...]] = field(default_factory=dict)


def bound_nodes(
    plans: tuple[Plan, ...], networks: Mapping[str, HostNetwork], lan_addresses: Mapping[str, str] | None = None
) -> Binding:
    """The plans of one service, one for each host of its set, with what a probe can tell of every host.

    networks: by host, of each host of the set. lan_addresses: what the inventory gives, by host.
    """
    nodes: list[Node] = []
    refusals: dict[str, tuple[Finding, ...]] = {}
    for node in plans[0].nodes:
        said = (lan_addresses or {}).get(node.host)
        found = _node(node.host, networks[node.host], plans[0].rig.network, said)
        if isinstance(found, Finding):
            refusals[node.host] = (found,)
        else:
            nodes.append(found)
    refusals |= _shared(nodes)
    if refusals:
        return Binding(plans, refusals)
    bound = tuple(addressed(plan, tuple(nodes)) for plan in plans)
    return Binding(bound, warnings=_unlike(tuple(nodes), networks))


def _node(host: str, network: HostNetwork, wanted: Network, said: str | None) -> Node | Finding:
    if network.error:
        return _finding("its interfaces could not be read: " + network.error, "is iproute2 installed there?")
    found = _address(host, network, wanted, said)
    if isinstance(found, Finding):
        return found
    holder = network.holder(found)
    assert holder is not None
    if not holder.up:
        return _finding(
            f"{holder.name}, which has {found}, has no link",
            f"is the cable in? on the host: ip link show {holder.name}",
        )
    return Node(host=host, address=found, interface=holder.name, rdma_devices=network.rdma_devices(holder.name))


def _address(host: str, network: HostNetwork, wanted: Network, said: str | None) -> str | Finding:
    if said is not None and ":" in said:
        return _finding(f"lan_address {said} is not IPv4, which engines across hosts are given", SAY % host)
    if said is not None:
        return _held(network, said, f"lan_address {said}", "say an address that the host has, or take lan_address away")
    if wanted.subnet is not None:
        return _in_subnet(host, network, wanted.subnet)
    ssh = network.ssh_address.partition("%")[0].removeprefix("::ffff:")
    if not ssh:
        return _finding("nobody can tell at which address the others reach it", SAY % host)
    try:
        address = ipaddress.IPv4Address(ssh)
    except ValueError:
        return _finding(f"SSH reaches it at {ssh}, which is not IPv4", SAY % host)
    if address.is_loopback:
        return _finding(f"SSH reaches it at {ssh}, where no other host does", SAY % host)
    return _held(network, ssh, f"SSH reaches it at {ssh}, which", SAY % host)


def _held(network: HostNetwork, address: str, what: str, hint: str) -> str | Finding:
    if network.holder(address) is not None:
        return address
    return _finding(f"{what} is no address of this host; it has {_all(network)}", hint)


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
            f"give one of its interfaces an address there, or name another one: lan_address of {host}",
        )
    if len(there) > 1:
        listed = " and ".join(f"{address} ({each.name})" for each, address in there)
        return _finding(
            f"more than one of its addresses is in rig.network.subnet {subnet}: {listed}",
            f'say which: ("{host}", {{"lan_address": "{there[0][1]}"}})',
        )
    return there[0][1]


def _all(network: HostNetwork) -> str:
    """Every address that others could use, with what holds it."""
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
    """Hosts that have the address of one before them."""
    first: dict[str, str] = {}
    found: dict[str, tuple[Finding, ...]] = {}
    for node in nodes:
        other = first.setdefault(node.address, node.host)
        if other != node.host:
            found[node.host] = (_finding(f"{node.address} is the address of {other} too", SAY % node.host),)
    return found


def _unlike(nodes: tuple[Node, ...], networks: Mapping[str, HostNetwork]) -> dict[str, tuple[Finding, ...]]:
    """What differs between the links of the hosts and should not."""
    links = {node.host: networks[node.host].holder(node.address) or Interface("") for node in nodes}

    def told(value: Callable[[Node], object], unit: str = "") -> str:
        return ", ".join(f"{node.host} {value(node) or 'none'}{unit}" for node in nodes)

    found = []
    if len({link.mtu for link in links.values()}) > 1:
        message = f"the MTU differs between the hosts: {told(lambda node: links[node.host].mtu)}"
        found.append(_finding(message, "large packets get lost on the way to the smaller one: set the same on all"))
    if len({link.speed_mbits for link in links.values() if link.speed_mbits}) > 1:
        message = f"the speed of the links differs: {told(lambda node: links[node.host].speed_mbits, ' Mb/s')}"
        found.append(_finding(message, "the slowest sets the pace of all"))
    if len({bool(node.rdma_devices) for node in nodes}) > 1:
        message = f"active RDMA devices: {told(lambda node: ' '.join(node.rdma_devices))}"
        found.append(_finding(message, "NCCL wants RDMA on all of them, or on none"))
    return {nodes[0].host: tuple(found)} if found else {}


def _finding(message: str, hint: str) -> Finding:
    return Finding(rule="host-network", message=message, hint=hint)
