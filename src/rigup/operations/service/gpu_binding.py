"""From plans to bound plans: the cards that a host has, by UUID and for good, and the hosts that it serves with.

A plan is made offline, and indices are NVML's, by the PCI bus. A card more, or in another slot, gives all the others
new ones, so a release names its cards by UUID. Which card an index meant when a release was made stands in the release,
and stays so for as long as the card is there. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rigup.facts.probe import Probe, ProbedGpu
from rigup.node import Node
from rigup.plan import BoundPlan, Plan
from rigup.planner.multinode.nodes import NodeCommand, addressed
from rigup.systemd.release import GPUS_KEY

VISIBLE = "CUDA_VISIBLE_DEVICES"


class BoundNodes(NamedTuple):
    """The hosts of one service that spans several, by rank, and a digest of what all of them run."""

    nodes: tuple[Node, ...]
    digest: str


def bound_nodes(plans: Sequence[Plan], nodes: tuple[Node, ...]) -> BoundNodes:
    """plans: of all hosts of the service, by rank. nodes: with addresses; () while nobody knows them."""
    parts = []
    for plan in plans:
        words = addressed(plan, nodes) if nodes else NodeCommand(plan.command, plan.environment)
        parts.append(plan.model_dump(mode="json", include={"build", "checkpoint"}) | words._asdict())
    text = json.dumps(parts, sort_keys=True)
    return BoundNodes(nodes or plans[0].nodes, hashlib.sha256(text.encode()).hexdigest()[:16])


def bind(plans: tuple[Plan, ...], probe: Probe, nodes: Mapping[str, BoundNodes] | None = None) -> tuple[BoundPlan, ...]:
    """The plans of one host with its cards and, by service, the nodes of the group that serves it.

    One whose cards or addresses cannot be told yet has its words as they are.
    """
    cards = _cards(plans, probe)
    return tuple(_bound(plan, cards, (nodes or {}).get(plan.service.name)) for plan in plans)


def _cards(plans: tuple[Plan, ...], probe: Probe) -> dict[int, str]:
    """The UUID of each index that the plans name or have had."""
    known: dict[int, str] = {}
    for plan in plans:
        known |= _kept(plan, probe)
    taken = {*known.values(), *(gpu for plan in plans for gpu in plan.service.gpus or () if isinstance(gpu, str))}
    wanted = [index for plan in plans if not _by_uuid(plan) for index in _indices(plan)]
    for index in (index for index in wanted if index not in known):
        if (card := _card(plans[0], index, probe, taken)) is not None:
            known[index] = card.uuid
            taken.add(card.uuid)
    return known


def needs_driver_to_bind(plans: tuple[BoundPlan, ...]) -> bool:
    """Whether a plan of these has cards to be told that no probe has told: there was no driver to ask."""
    return any(_indices(plan) and not plan.gpu_uuids for plan in plans)


def unknown_gpu_uuids(plans: tuple[Plan, ...], probe: Probe) -> Iterator[tuple[Plan, str]]:
    """Each UUID that a service names and that no card of the host has, with its plan. None while nobody can say."""
    there = {gpu.uuid for gpu in probe.gpus}
    for plan in plans:
        for gpu in plan.service.gpus or ():
            if isinstance(gpu, str) and there and gpu not in there:
                yield plan, gpu


def _by_uuid(plan: Plan) -> bool:
    return any(isinstance(gpu, str) for gpu in plan.service.gpus or ())


def _indices(plan: Plan) -> tuple[int, ...]:
    """The indices that need a card, in the order of use: none where all cards are used and all are the same."""
    used = tuple(memory.gpu for memory in plan.memory)
    alike = len({gpu.name for gpu in plan.rig.gpus}) == 1
    return () if alike and used == tuple(range(len(plan.rig.gpus))) and not _by_uuid(plan) else used


def _kept(plan: Plan, probe: Probe) -> dict[int, str]:
    """What the current release says, where it still holds: the same indices, and each card there and of its kind."""
    if _by_uuid(plan):
        return {}
    said = (probe.releases.get(plan.service.name) or {}).get(GPUS_KEY) or []
    cards = {int(index): str(uuid) for index, uuid in said}
    if not cards or tuple(cards) != _indices(plan):
        return {}
    names = {gpu.uuid: gpu.name for gpu in probe.gpus}
    right = all(names.get(uuid) == plan.rig.gpus[index].name for index, uuid in cards.items())
    return cards if right or not names else {}


def _card(plan: Plan, index: int, probe: Probe, taken: set[str]) -> ProbedGpu | None:
    """The card of an index: as many of its kind before it on the host as in the rig; else the first that is left."""
    name = plan.rig.gpus[index].name
    alike = [gpu for gpu in sorted(probe.gpus, key=lambda gpu: gpu.index) if gpu.name == name and gpu.uuid]
    place = sum(gpu.name == name for gpu in plan.rig.gpus[:index])
    free = [gpu for gpu in alike if gpu.uuid not in taken]
    if place < len(alike) and alike[place] in free:
        return alike[place]
    return free[0] if free else None


def _bound(plan: Plan, cards: dict[int, str], group: BoundNodes | None) -> BoundPlan:
    indices = _indices(plan)
    if _by_uuid(plan):
        uuids = {index: str((plan.service.gpus or ())[index]) for index in indices}
    else:
        uuids = {index: cards[index] for index in indices if index in cards}
    if len(uuids) < len(indices):
        uuids = {}
    known = group is not None and all(node.address for node in group.nodes)
    command, environment = addressed(plan, group.nodes) if group and known else (plan.command, plan.environment)
    if uuids:
        environment = {**environment, VISIBLE: ",".join(uuids.values())}
    exact = {"command": command, "environment": environment, "nodes": group.nodes if group else plan.nodes}
    digest = group.digest if group else ""
    return BoundPlan(**{**dict(plan), **exact}, offline=plan, gpu_uuids=uuids, group_digest=digest)
