"""What a probe would tell of the hosts of a plan: made-up addresses on a made-up network card."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.facts.probe import Probe
from rigup.node import Node
from rigup.operations.service.gpu_binding import BoundNodes, bind, bound_nodes
from rigup.plan import BoundPlan, Plan


def nodes_of(plan: Plan) -> tuple[Node, ...]:
    """An address, an interface and, where there are GPUs, an RDMA device for each host of a service."""
    devices = ("mlx5_0",) if plan.rig.gpus else ()
    return tuple(
        Node(host=node.host, address=f"10.20.0.{number}", interface=f"enp{number}s0", rdma_devices=devices)
        for number, node in enumerate(plan.nodes, 1)
    )


def bound(plans: Sequence[Plan]) -> list[BoundPlan]:
    """The plans as they are run once every host is known; no card is told yet."""

    def groups(plan: Plan) -> dict[str, BoundNodes]:
        together = [other for other in plans if (other.service, other.nodes) == (plan.service, plan.nodes)]
        return {plan.service.name: bound_nodes(together, nodes_of(plan))} if plan.nodes else {}

    return [bind((plan,), Probe(), groups(plan))[0] for plan in plans]


def unbound(plan: Plan) -> BoundPlan:
    """The plan as it is put on a host of which nothing is known that a plan waits for."""
    return bind((plan,), Probe())[0]
