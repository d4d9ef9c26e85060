"""The hosts of a service put into its words: by what a probe told of them, or by their names while nobody has asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rigup.node import Node
from rigup.plan import Plan

_TOKEN = re.compile(r"\{node(?P<rank>\d*)\.(?P<what>address|interface|rdma_devices)\}(?P<colon>:?)")
_BY_PROBE = {"interface": "<interface, by probe>", "rdma_devices": "<RDMA devices, by probe>"}


class NodeCommand(NamedTuple):
    """What a host runs."""

    command: tuple[str, ...]
    environment: dict[str, str]


def addressed(plan: Plan, nodes: Sequence[Node]) -> NodeCommand:
    """What one host of a service runs, with `nodes`, by rank, in place of what stood for them.

    A variable that has no value then is left out. The words of a plan for one host stay as they are.
    Raises ValueError where there are other than the plan's nodes, or one has no address.
    """
    if [node.host for node in nodes] != [node.host for node in plan.nodes]:
        raise ValueError(f"{plan.host}: these are not the hosts of the plan")
    if lacking := [node.host for node in nodes if not node.address]:
        raise ValueError(f"{plan.host}: no address for {', '.join(lacking)}")
    return _filled(plan, lambda what, rank: _value_of(what, nodes[rank]))


def named(plan: Plan) -> NodeCommand:
    """What people are shown before any host was asked: the inventory's names in place of addresses."""
    return _filled(plan, lambda what, rank: plan.nodes[rank].host if what == "address" else _BY_PROBE[what])


def _value_of(what: str, node: Node) -> str:
    if what == "rdma_devices":
        # Without "=" NCCL takes each name for the beginning of one: mlx5_1 would be mlx5_10 as well.
        return "=" + ",".join(node.rdma_devices) if node.rdma_devices else ""
    return node.address if what == "address" else node.interface


def _filled(plan: Plan, value_of: Callable[[str, int], str]) -> NodeCommand:
    """With the answers of told(what, rank) in place of tokens."""
    if not plan.nodes:
        return NodeCommand(plan.command, plan.environment)

    def replaced(match: re.Match[str]) -> str:
        value = value_of(match["what"], int(match["rank"] or plan.rank))
        # An IPv6 address before a port.
        return (f"[{value}]" if match["colon"] and ":" in value else value) + match["colon"]

    command = tuple(_TOKEN.sub(replaced, word) for word in plan.command)
    variables = {name: (text, _TOKEN.sub(replaced, text)) for name, text in plan.environment.items()}
    kept = {name: value for name, (text, value) in variables.items() if value or not text}
    return NodeCommand(command, kept)
