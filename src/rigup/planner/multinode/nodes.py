"""Fills in the hosts of a service in its command: from a probe, or by their names before a host was probed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rigup.node import Node
from rigup.plan import Plan

_TOKEN = re.compile(r"\{node(?P<rank>\d*)\.(?P<what>address|interface|rdma_devices)\}(?P<colon>:?)")
_BY_PROBE = {"interface": "<interface, by probe>", "rdma_devices": "<RDMA devices, by probe>"}


class NodeCommand(NamedTuple):
    """The command and the variables of a host."""

    command: tuple[str, ...]
    environment: dict[str, str]


def addressed(plan: Plan, nodes: Sequence[Node]) -> NodeCommand:
    """What one host of a service runs, with the tokens replaced by values of `nodes`, which are in order of rank.

    Leaves out a variable whose value is empty then. Does not change a plan for one host.
    Raises ValueError if the nodes are not the plan's, or if one has no address.
    """
    if [node.host for node in nodes] != [node.host for node in plan.nodes]:
        raise ValueError(f"{plan.host}: these are not the hosts of the plan")
    if lacking := [node.host for node in nodes if not node.address]:
        raise ValueError(f"{plan.host}: no address for {', '.join(lacking)}")
    return _filled(plan, lambda what, rank: _value(what, nodes[rank]))


def named(plan: Plan) -> NodeCommand:
    """What to show to people before a host was probed: names of the inventory instead of addresses."""
    return _filled(plan, lambda what, rank: plan.nodes[rank].host if what == "address" else _BY_PROBE[what])


def _value(what: str, node: Node) -> str:
    if what == "rdma_devices":
        # Without "=", NCCL treats each name as a prefix: mlx5_1 would also match mlx5_10.
        return "=" + ",".join(node.rdma_devices) if node.rdma_devices else ""
    return node.address if what == "address" else node.interface


def _filled(plan: Plan, value_of: Callable[[str, int], str]) -> NodeCommand:
    """The plan's words with value_of(what, rank) instead of tokens."""
    if not plan.nodes:
        return NodeCommand(plan.command, plan.environment)

    def replaced(match: re.Match[str]) -> str:
        value = value_of(match["what"], int(match["rank"] or plan.rank))
        # An IPv6 address before a port needs brackets.
        return (f"[{value}]" if match["colon"] and ":" in value else value) + match["colon"]

    command = tuple(_TOKEN.sub(replaced, word) for word in plan.command)
    variables = {name: (text, _TOKEN.sub(replaced, text)) for name, text in plan.environment.items()}
    kept = {name: value for name, (text, value) in variables.items() if value or not text}
    return NodeCommand(command, kept)
