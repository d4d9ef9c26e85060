"""Asks the planner the way a group_data file does: raw values in, a decision out."""

from __future__ import annotations

from functools import cache
from typing import Any

from rigup.artifacts import LockedNccl
from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.commands.rendered import plan_of
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.candidate import Candidate
from rigup.planner.decide import decide
from rigup.planner.decision import Decision
from rigup.planner.enumeration import PlanningRequest
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import decide_all

FILE = "group_data/rig.py"
PRO_6000 = "RTX PRO 6000 Blackwell Workstation Edition"
FP8 = "MiniMaxAI/MiniMax-M2.5"
NVFP4 = "lukealonso/MiniMax-M2.5-NVFP4"
AWQ = "mratsim/MiniMax-M2.5-BF16-INT4-AWQ"
NCCL = LockedNccl(
    version="2.28.9",
    files={
        f"nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_{architecture}.whl": sha256
        for architecture, sha256 in (
            ("x86_64", "e4553a30f34195f3fa1da02a6da3d6337d28f2003943aa0a3d247bbc25fefc42"),
            ("aarch64", "01c873ba1626b54caa12272ed228dc5b2781545e0ae8ba3f432a8ef1c6d78643"),
        )
    },
)
REAP = "lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4"


@cache
def catalogue() -> Catalogue:
    """The toolkit's own catalogue, read once."""
    return load_catalogue()


def request(
    gpus: object,
    service: dict[str, Any],
    host_memory_gib: float | None = None,
    lock: Lock | None = None,
    host_memory: str | None = None,
) -> PlanningRequest:
    """One service on a rig of these GPUs. host_memory: "8x DDR5-4800"."""
    data: dict[str, Any] = {"gpus": gpus}
    if host_memory is not None:
        data["host_memory"] = host_memory
    if host_memory_gib is not None:
        data["host_memory_gib"] = host_memory_gib
    rig = read_rig(data, FILE, catalogue())
    (wanted,) = read_services({"chat": service}, FILE, rig)
    return planning_request(rig, wanted, catalogue(), lock or Lock(), FILE)


def decided(
    gpus: object, service: dict[str, Any], host_memory_gib: float | None = None, lock: Lock | None = None
) -> Plan:
    """The plan of one service on a rig of these GPUs, or its refusal."""
    (outcome,) = decide_all([request(gpus, service, host_memory_gib, lock)])
    return plan_of(outcome, "group", ("host",))


def side_by_side(
    services: dict[str, dict[str, Any]],
    gpus: object,
    host_memory_gib: float | None = None,
    lock: Lock | None = None,
) -> tuple[Plan, ...]:
    """The plans of several services on one rig of host gpu1."""
    rig = read_rig(
        {"gpus": gpus} | ({"host_memory_gib": host_memory_gib} if host_memory_gib else {}), FILE, catalogue()
    )
    requests = [
        planning_request(rig, one, catalogue(), lock or Lock(), FILE) for one in read_services(services, FILE, rig)
    ]
    return tuple(plan_of(outcome, "group", ("gpu1",)) for outcome in decide_all(requests))


def decision(
    gpus: object,
    service: dict[str, Any],
    host_memory_gib: float | None = None,
    lock: Lock | None = None,
    host_memory: str | None = None,
) -> Decision:
    """What is decided; fails if it is refused."""
    found = decide(request(gpus, service, host_memory_gib, lock, host_memory))
    assert isinstance(found, Decision), found.findings
    return found


def served(
    gpus: object, service: dict[str, Any], host_memory_gib: float | None = None, host_memory: str | None = None
) -> Candidate:
    """What is served; fails if it is refused."""
    return decision(gpus, service, host_memory_gib, host_memory=host_memory).candidate


def refused(gpus: object, service: dict[str, Any], host_memory_gib: float | None = None) -> Plan:
    """The refusal; fails if something is served."""
    plan = decided(gpus, service, host_memory_gib)
    assert plan.verdict == "refused", plan
    return plan
