"""What a probe would tell of the hosts of a plan: made-up addresses on a made-up network card."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.node import Node
from rigup.plan import Plan
from rigup.planner.nodes import addressed


def nodes_of(plan: Plan) -> tuple[Node, ...]:
    """An address, an interface and, where there are GPUs, an RDMA device for each host of a service."""
    devices = ("mlx5_0",) if plan.rig.gpus else ()
    return tuple(
        Node(host=node.host, address=f"10.20.0.{number}", interface=f"enp{number}s0", rdma_devices=devices)
        for number, node in enumerate(plan.nodes, 1)
    )


def bound(plans: Sequence[Plan]) -> list[Plan]:
    """The plans as they are run once every host is known; those for one host as they are."""
    return [addressed(plan, nodes_of(plan)) for plan in plans]
