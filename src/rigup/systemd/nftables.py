"""The firewall of a service across hosts: closes the ports that its hosts open for each other to everyone else.

The service has its own table, which exists only while the unit runs: the unit loads it before the engine starts, and
deletes it after the engine ends. rigup does not touch other tables, and what they refuse stays refused.

rigup knows some ports by number. Engines, NCCL, Gloo and Ray also open ports that the kernel chooses, on every address.
The table recognises these by the unit's cgroup, except for the API's port. A rule refers to the cgroup that existed
when it was loaded, and systemd creates a new one at every start (Linux 6.18 with systemd 252), so the unit itself loads
the table at every start. A rule for the whole port range would also close ports of other programs on the host.

The table only checks the first packet of a connection. This needs no connection tracking, which is slow on fast links.
Source: nft(8), "socket cgroupv2", Linux 5.13 and nftables 0.9.9 and later; Debian 12 has 6.1 and 1.0.6, Ubuntu 22.04
5.15 and 1.0.2.
"""

from __future__ import annotations

from rigup import layout
from rigup.plan import BoundPlan

NFT = "/usr/sbin/nft"
PACKAGE = "nftables"


def is_closed(plan: BoundPlan) -> bool:
    """Whether the service needs a firewall around the ports between its hosts."""
    return bool(plan.nodes) and not plan.rig.network.private


def table(service: str) -> str:
    """The table's family and name. nft does not accept a hyphen, and service names do not contain underscores."""
    return f"inet rigup_{service.replace('-', '_')}"


def load(plan: BoundPlan) -> tuple[str, ...]:
    """The command that loads the table of a plan with addresses, replacing an existing one in one step."""
    return (NFT, replacing(table(plan.service.name), *_rules(plan)))


def replacing(name: str, *rules: str, hook: str = "input") -> str:
    """What nft executes to have a table, by family and name, with these rules at a hook, in one step."""
    chain = f"add chain {name} {hook} {{ type filter hook {hook} priority filter - 10; policy accept; }}"
    added = (f"add rule {name} {hook} {rule}" for rule in rules)
    return "; ".join((f"add table {name}", f"delete table {name}", f"add table {name}", chain, *added))


def unload(service: str) -> tuple[str, ...]:
    """The command that deletes the table."""
    return (NFT, f"delete table {table(service)}")


def _rules(plan: BoundPlan) -> tuple[str, ...]:
    peers = ", ".join(node.address for node in plan.nodes)
    known = sorted({peer.port for peer in plan.peer_ports if peer.rank == plan.rank})
    but_the_api = f"tcp dport != {plan.service.port} " if plan.rank == 0 else "meta l4proto tcp "
    return (
        'iifname "lo" accept',
        "meta l4proto != tcp accept",
        "tcp flags & (fin | syn | rst | ack) != syn accept",
        f"ip saddr {{ {peers} }} accept",
        *((f"tcp dport {{ {', '.join(map(str, known))} }} drop",) if known else ()),
        f'{but_the_api}socket cgroupv2 level 2 "system.slice/{layout.unit_name(plan.service.name)}" drop',
    )
