"""Asks the planner the way a group_data file does: raw values in, a decision out."""

from __future__ import annotations

from functools import cache
from typing import Any

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.candidate import Candidate
from rigup.planner.decide import Decision, decide
from rigup.planner.reading import read_rig, read_services

FILE = "group_data/rig.py"
PRO_6000 = "RTX PRO 6000 Blackwell Workstation Edition"
FP8 = "MiniMaxAI/MiniMax-M2.5"
NVFP4 = "lukealonso/MiniMax-M2.5-NVFP4"
AWQ = "mratsim/MiniMax-M2.5-BF16-INT4-AWQ"
REAP = "lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4"


@cache
def catalogue() -> Catalogue:
    """The toolkit's own catalogue, read once."""
    return load_catalogue()


def decided(
    gpus: object, service: dict[str, Any], host_memory_gib: float | None = None, lock: Lock | None = None
) -> Decision:
    """The decision for one service on a rig of these GPUs."""
    data: dict[str, Any] = {"gpus": gpus}
    if host_memory_gib is not None:
        data["host_memory_gib"] = host_memory_gib
    rig = read_rig(data, FILE, catalogue())
    (wanted,) = read_services({"chat": service}, FILE, catalogue(), rig)
    return decide("host", "group", rig, wanted, catalogue(), lock or Lock())


def served(gpus: object, service: dict[str, Any], host_memory_gib: float | None = None) -> Candidate:
    """What is served; fails if it is refused."""
    decision = decided(gpus, service, host_memory_gib)
    assert decision.candidate is not None, decision.plan.refusals
    return decision.candidate


def refused(gpus: object, service: dict[str, Any], host_memory_gib: float | None = None) -> Plan:
    """The refusal; fails if something is served."""
    decision = decided(gpus, service, host_memory_gib)
    assert decision.candidate is None, decision.plan
    return decision.plan
