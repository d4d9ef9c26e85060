"""Which roles a host with GPUs gets: the fabric is waited for wherever there is one, whoever installs the driver."""

from __future__ import annotations

from typing import Any

import pytest

import roles.gpus
from rigup.catalogue.driver_versions import locked_driver
from rigup.facts.probe import Nvidia, Probe
from rigup.lock import Lock
from rigup.plan import Plan
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
