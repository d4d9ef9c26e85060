"""Where others are on the network: what the hosts of a service open to each other is closed to everybody else.

One table of the service's own, there exactly while the unit runs: loaded before the engine starts, gone after it has
ended. Nobody else's table is touched, and what another table refuses stays refused.

The ports by number are those that rigup knows. Engines, NCCL, Gloo and Ray open others as they run, of the kernel's
choice, on every address. They are known by whose they are: the cgroup of the unit, but for the API's port. That rule
holds the cgroup as it is, and systemd makes a new one at every start (Linux 6.18 with systemd 252), so the table
is loaded at every start and by the unit itself. By the port range alone it would close what others on that host have.

Only the first packet of a connection is looked at: that needs no connection tracking, which costs on fast links.
Source: nft(8), "socket cgroupv2", Linux 5.13 and nftables 0.9.9 and later; Debian 12 has 6.1 and 1.0.6, Ubuntu 22.04
5.15 and 1.0.2.
"""

from __future__ import annotations

from rigup import layout
from rigup.plan import BoundPlan

NFT = "/usr/sbin/nft"
PACKAGE = "nftables"


def is_closed(plan: BoundPlan) -> bool:
    """Whether a firewall is wanted around what the hosts of this service have between them."""
    return bool(plan.nodes) and not plan.rig.network.private


def table(service: str) -> str:
    """The table's family and name. nft takes no hyphen, and a service's name has no underscore."""
    return f"inet rigup_{service.replace('-', '_')}"


def load(plan: BoundPlan) -> tuple[str, ...]:
    """What loads the table of a plan that has addresses, in place of one that is there, in one step."""
    name = table(plan.service.name)
    chain = f"add chain {name} input {{ type filter hook input priority filter - 10; policy accept; }}"
    rules = (f"add rule {name} input {rule}" for rule in _rules(plan))
    return (NFT, "; ".join((f"add table {name}", f"delete table {name}", f"add table {name}", chain, *rules)))


def unload(service: str) -> tuple[str, ...]:
    """What takes the table away."""
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
