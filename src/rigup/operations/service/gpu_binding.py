"""Binds plans to a host: to its GPUs, by UUID, and to the nodes of the group that serves it.

A plan is made offline, with NVML's indices, which follow the PCI bus. A new GPU, or one in another slot, changes the
indices of the others, so a release names its GPUs by UUID. The release records which GPU each index meant, and keeps
it as long as that GPU is present. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rigup.facts.probe import Probe, ProbedGpu
from rigup.node import Node
from rigup.plan import BoundPlan, GpuMemory, Plan
from rigup.systemd.release import GPUS_KEY

VISIBLE = "CUDA_VISIBLE_DEVICES"


class BoundNodes(NamedTuple):
    """The hosts of one multi-host service, by rank, and a digest of what all of them run."""

    nodes: tuple[Node, ...]
    digest: str


def bound_nodes(plans: Sequence[Plan], nodes: tuple[Node, ...]) -> BoundNodes:
    """plans: of all hosts of the service, by rank. nodes: with addresses; () while they are unknown."""
    from rigup.planner.multinode.nodes import NodeCommand, addressed  # few services span hosts

    parts = []
    for plan in plans:
        words = addressed(plan, nodes) if nodes else NodeCommand(plan.command, plan.environment)
        loaded = {"build", "checkpoint", *(["draft"] if plan.draft else [])}
        parts.append(plan.model_dump(mode="json", include=loaded) | words._asdict())
    text = json.dumps(parts, sort_keys=True)
    return BoundNodes(nodes or plans[0].nodes, hashlib.sha256(text.encode()).hexdigest()[:16])


def bind(plans: tuple[Plan, ...], probe: Probe, nodes: Mapping[str, BoundNodes] | None = None) -> tuple[BoundPlan, ...]:
    """The bound plans of one host: with its GPUs and, by service, the nodes of the group that serves it.

    A plan whose GPUs or addresses are still unknown keeps its command and environment.
    """
    lost = _goes_without_some(plans, probe)
    if lost:
        probe = replace(probe, gpus=tuple(gpu for gpu in probe.gpus if not gpu.error))
    cards, places = _cards(plans, probe, lost), _numa_nodes(probe)
    return tuple(_bound(plan, cards, places, (nodes or {}).get(plan.service.name), lost) for plan in plans)


def _cards(plans: tuple[Plan, ...], probe: Probe, lost: bool) -> dict[int, str]:
    """The UUID of each index that the plans name or have used before."""
    known: dict[int, str] = {}
    for plan in plans:
        known |= _kept(plan, probe, lost)
    taken = {*known.values(), *(gpu for plan in plans for gpu in plan.service.gpus or () if isinstance(gpu, str))}
    wanted = [index for plan in plans if not _by_uuid(plan) for index in _indices(plan, lost)]
    for index in (index for index in wanted if index not in known):
        if (card := _card(plans[0], index, probe, taken)) is not None:
            known[index] = card.uuid
            taken.add(card.uuid)
    return known


def needs_driver_to_bind(plans: tuple[BoundPlan, ...]) -> bool:
    """Whether a plan needs UUIDs of GPUs that the probe could not read, because no driver was loaded."""
    return any(_indices(plan) and not plan.gpu_uuids for plan in plans)


def cards_of(plan: BoundPlan, probe: Probe) -> Iterator[tuple[GpuMemory, ProbedGpu]]:
    """What a plan counts on each of its cards, with the card; without those that do not respond."""
    by_uuid = {gpu.uuid: gpu for gpu in probe.gpus if gpu.uuid}
    by_index = {gpu.index: gpu for gpu in probe.gpus}
    for row in plan.memory:
        uuid = plan.gpu_uuids.get(row.gpu)
        gpu = by_uuid.get(uuid) if uuid else by_index.get(row.gpu)
        if gpu is not None and not gpu.error:
            yield row, gpu


def unknown_gpu_uuids(plans: tuple[Plan, ...], probe: Probe) -> Iterator[tuple[Plan, str]]:
    """Each UUID that a service names but the host lacks, with its plan. Yields nothing while the GPUs are unknown."""
    there = {gpu.uuid for gpu in probe.gpus}
    for plan in plans:
        for gpu in plan.service.gpus or ():
            if isinstance(gpu, str) and there and gpu not in there:
                yield plan, gpu


def _by_uuid(plan: Plan) -> bool:
    return any(isinstance(gpu, str) for gpu in plan.service.gpus or ())


def _goes_without_some(plans: tuple[Plan, ...], probe: Probe) -> bool:
    """Whether a GPU of the host does not respond and the rig is declared without it: plans name those that do."""
    there = sum(not gpu.error for gpu in probe.gpus)
    return bool(plans) and len(plans[0].rig.gpus) <= there < len(probe.gpus)


def _indices(plan: Plan, lost: bool = False) -> tuple[int, ...]:
    """The indices that need a GPU, in the order of use; none if all GPUs are used and all are the same model.

    lost: whether the host has further GPUs, which do not respond.
    """
    used = tuple(memory.gpu for memory in plan.memory)
    alike = len({gpu.name for gpu in plan.rig.gpus}) == 1
    return () if not lost and alike and used == tuple(range(len(plan.rig.gpus))) and not _by_uuid(plan) else used


def _kept(plan: Plan, probe: Probe, lost: bool) -> dict[int, str]:
    """The GPUs in the current release, if still valid: the same indices, and each GPU present and of the same model."""
    if _by_uuid(plan):
        return {}
    recorded = (probe.releases.get(plan.service.name) or {}).get(GPUS_KEY) or []
    cards = {int(index): str(uuid) for index, uuid in recorded}
    if not cards or tuple(cards) != _indices(plan, lost):
        return {}
    names = {gpu.uuid: gpu.name for gpu in probe.gpus}
    right = all(names.get(uuid) == plan.rig.gpus[index].name for index, uuid in cards.items())
    return cards if right or not names else {}


def _card(plan: Plan, index: int, probe: Probe, taken: set[str]) -> ProbedGpu | None:
    """The GPU of an index: the same position among its model on the host as in the rig; else the first free one."""
    name = plan.rig.gpus[index].name
    alike = [gpu for gpu in sorted(probe.gpus, key=lambda gpu: gpu.index) if gpu.name == name and gpu.uuid]
    place = sum(gpu.name == name for gpu in plan.rig.gpus[:index])
    free = [gpu for gpu in alike if gpu.uuid not in taken]
    if place < len(alike) and alike[place] in free:
        return alike[place]
    return free[0] if free else None


class _NumaNodes(NamedTuple):
    """The nodes of a host's cards, in the order of the bus and by UUID. least_mib: the memory of the smallest."""

    by_bus: tuple[int, ...]
    by_uuid: dict[str, int]
    least_mib: int


def _numa_nodes(probe: Probe) -> _NumaNodes | None:
    """None where all cards are on one node, or one of theirs is unknown, or has no processors or no memory."""
    by_bus = [card.numa_node for card in sorted(probe.pci_gpus, key=lambda card: card.bus.lower())]
    there = {node.node: node.memory_kib // 1024 for node in probe.numa_nodes if node.cpus and node.memory_kib}
    known = [node for node in by_bus if node in there]
    if len(set(known)) < 2 or len(known) < len(by_bus):
        return None
    by_uuid = {card.uuid: card.numa_node for card in probe.gpus if card.uuid and card.numa_node in there}
    return _NumaNodes(tuple(known), by_uuid, min(there[node] for node in known))


def _on_nodes(plan: Plan, command: tuple[str, ...], uuids: dict[int, str], places: _NumaNodes | None) -> dict[str, Any]:
    """The command and the build with what binds the service to the nodes of its cards; {} where it is not bound.

    The packages do not wait for the driver, which tells the cards apart: they are installed before it.
    """
    if plan.numa is None or plan.build is None or places is None or (plan.host_memory_mib or 0) > places.least_mib:
        return {}
    packages = tuple(dict.fromkeys((*plan.build.runtime_packages, *plan.numa.packages)))
    found: dict[str, Any] = {"build": plan.build.model_copy(update={"runtime_packages": packages})}
    if uuids or _indices(plan):
        used = [places.by_uuid[uuid] for uuid in uuids.values() if uuid in places.by_uuid]
    else:
        used = list(places.by_bus)
    if used and len(used) == len(plan.memory):
        found["command"] = (*command, *plan.numa.words, *map(str, used))
    return found


def _bound(
    plan: Plan, cards: dict[int, str], places: _NumaNodes | None, group: BoundNodes | None, lost: bool
) -> BoundPlan:
    indices = _indices(plan, lost)
    if _by_uuid(plan):
        uuids = {index: str((plan.service.gpus or ())[index]) for index in indices}
    else:
        uuids = {index: cards[index] for index in indices if index in cards}
    if len(uuids) < len(indices):
        uuids = {}
    command, environment = plan.command, plan.environment
    if group is not None and all(node.address for node in group.nodes):
        from rigup.planner.multinode.nodes import addressed  # few services span hosts

        command, environment = addressed(plan, group.nodes)
    if uuids:
        environment = {**environment, VISIBLE: ",".join(uuids.values())}
    exact: dict[str, Any] = {
        "command": command,
        "environment": environment,
        "nodes": group.nodes if group else plan.nodes,
    }
    exact |= _on_nodes(plan, command, uuids, places)
    digest = group.digest if group else ""
    return BoundPlan(**{**dict(plan), **exact}, offline=plan, gpu_uuids=uuids, group_digest=digest)
