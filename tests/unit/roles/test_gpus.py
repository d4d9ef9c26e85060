"""Which roles a host with GPUs gets: the fabric is waited for wherever there is one, with any driver."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import roles.gpus
from rigup.catalogue.driver_versions import locked_driver
from rigup.errors import HostFailed
from rigup.facts.links import GpuLink, Links, PairLink
from rigup.facts.probe import GpuPair, Nvidia, Probe, ProbedGpu
from rigup.lock import Lock
from rigup.operations.driver import links
from rigup.plan import Parallel, Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from rigup.settings import HostSettings
from tests.unit.planner.asking import FILE, catalogue

LOCK = Lock(driver=locked_driver("580.178.04"))


def planned(gpus: object, lock: Lock) -> Plan:
    rig = read_rig({"gpus": gpus}, FILE, catalogue())
    smol = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
    (service,) = read_services({"chat": smol}, FILE, rig)
    return plan_service("gpu1", "group", rig, service, catalogue(), lock)


@pytest.mark.parametrize(
    ("gpus", "nvswitches", "lock", "expected"),
    [
        ("8x B200", 0, Lock(), ["fabric", "power"]),
        ("8x RTX 3090", 4, Lock(), ["fabric", "power"]),
        ("8x RTX 3090", 0, Lock(), ["power"]),
        ("8x B200", 0, LOCK, ["repository", "driver", "power"]),
        ([], 0, Lock(), []),
    ],
)
def test_the_roles_in_order(
    monkeypatch: pytest.MonkeyPatch, gpus: object, nvswitches: int, lock: Lock, expected: list[str]
) -> None:
    called: list[str] = []

    def note(name: str) -> Any:
        return lambda *arguments, **words: called.append(name)

    for name in ("repository", "driver", "fabric", "cuda", "power"):
        monkeypatch.setattr(roles.gpus, name, note(name))
    probe = Probe(os="debian-12", architecture="x86_64", secure_boot="off", nvidia=Nvidia(nvswitches=nvswitches))
    roles.gpus.gpus((planned(gpus, lock),), probe, HostSettings())
    assert called == expected


def test_a_container_gets_the_drivers_libraries_and_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    for name in ("repository", "driver", "container_driver", "fabric", "cuda", "power"):
        monkeypatch.setattr(roles.gpus, name, lambda *arguments, name=name, **words: called.append(name))
    probe = Probe(os="debian-12", architecture="x86_64", secure_boot="on", virtualisation="lxc")
    roles.gpus.gpus((planned("2x RTX 3090", LOCK),), probe, HostSettings())
    assert called == ["repository", "container_driver"]


CARDS = tuple(
    ProbedGpu("NVIDIA GeForce RTX 4090", index=index, uuid=f"GPU-{index}", compute_capability="8.9") for index in (0, 1)
)
PATCHED = Probe(
    nvidia=Nvidia(loaded="580.178.04"), gpus=CARDS, gpu_pairs=(GpuPair(0, 1, "node", peer=True, nvlink=False),)
)


@pytest.mark.parametrize(
    ("tensor", "changes", "peer", "verified"),
    [(2, False, True, True), (1, False, True, False), (2, True, True, False), (2, False, False, False)],
)
def test_data_are_verified_where_a_service_spans_cards_of_a_patched_driver(
    monkeypatch: pytest.MonkeyPatch, tensor: int, changes: bool, peer: bool, verified: bool
) -> None:
    called: list[str] = []
    for name in ("repository", "driver", "links", "cuda", "power", "patched_driver"):
        monkeypatch.setattr(
            roles.gpus,
            name,
            lambda *arguments, name=name, **words: called.append(name) or (name == "driver" and changes),
        )
    plan = planned("2x RTX 4090", LOCK).model_copy(update={"parallel": Parallel(tensor=tensor)})
    pairs = (replace(PATCHED.gpu_pairs[0], peer=peer),)
    probe = replace(PATCHED, os="debian-12", architecture="x86_64", gpu_pairs=pairs)
    roles.gpus.gpus((plan,), probe, HostSettings())
    assert ("patched_driver" in called) == verified


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"correct": True}, ""),
        ({"correct": False}, "unchanged"),
        ({"unmeasured": "only 300 MiB are free"}, "only 300 MiB are free"),
        (None, "Driver Not Loaded"),
    ],
)
def test_a_patched_driver_is_verified_or_refused(
    monkeypatch: pytest.MonkeyPatch, pair: dict[str, Any] | None, message: str
) -> None:
    read = Links(error="Driver Not Loaded", done=True)
    if pair is not None:
        ways = tuple(PairLink(pair=order, read=True, nvlink=False, **pair) for order in ([0, 1], [1, 0]))
        read = Links(gpus=tuple(GpuLink(gpu=index, bus="") for index in (0, 1)), pairs=ways, done=True)
    monkeypatch.setattr(links, "read_links", lambda host: read)
    monkeypatch.setattr(roles.gpus, "read_probe", lambda host: PATCHED)
    host: Any = SimpleNamespace(name="gpu1")
    if not message:
        roles.gpus.check_patched_driver(host)
        return
    with pytest.raises(HostFailed, match=message):
        roles.gpus.check_patched_driver(host)
