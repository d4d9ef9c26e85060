"""What each system gets: driver and toolkit of a first lock, the packages of every way to run an engine, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.catalogue.systems import system_facts
from rigup.catalogue.tools.containers import container_facts
from rigup.commands.rendered import plan_of
from rigup.lock import Lock
from rigup.planner.driver import driver_for, toolkit_for
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import decide_all
from rigup.rig import SUPPORTED_OS
from tests.golden.golden import assert_golden
from tests.unit.planner.asking import FILE, catalogue

SMALL, LARGE = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}, {"model": "gpt-oss-20b"}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama.cpp on GPUs": ("2x RTX 3090", {**SMALL, "build": "source"}),
    "llama.cpp on the CPU": ("none", {**SMALL, "build": "source"}),
    "llama.cpp as an image": ("2x RTX 3090", {**SMALL, "build": "image"}),
    "vLLM": ("2x RTX 5090", {**LARGE, "engine": "vllm", "build": "wheel"}),
    "vLLM on the CPU": ("none", {"model": "Qwen3.6-27B", "engine": "vllm", "version": "0.32.0", "build": "wheel"}),
    "SGLang": ("2x RTX 5090", {**LARGE, "engine": "sglang", "build": "wheel"}),
}


@pytest.mark.parametrize("os", SUPPORTED_OS)
def test_what_a_system_gets(os: str) -> None:
    known = system_facts().system(os)
    assert known is not None
    lock = Lock(driver=driver_for((os,), None), cuda_toolkit=toolkit_for((os,), None))
    assert lock.driver is not None and lock.cuda_toolkit is not None
    lines = [
        f"glibc {known.glibc}, Python {known.python}, podman {container_facts().podman.versions[os]}",
        f"driver {lock.driver.version}, CUDA toolkit {lock.cuda_toolkit.version}",
    ]
    for way, (gpus, service) in WAYS.items():
        lines += ["", way, *(f"  {line}" for line in _lines(os, gpus, service, lock))]
    assert_golden(f"systems/{os}.txt", "\n".join(lines) + "\n")


def _lines(os: str, gpus: str, service: dict[str, Any], lock: Lock) -> list[str]:
    rig = read_rig({"gpus": [] if gpus == "none" else gpus, "host_memory_gib": 128, "os": os}, FILE, catalogue())
    (wanted,) = read_services({"chat": {**service}}, FILE, rig)
    (outcome,) = decide_all([planning_request(rig, wanted, catalogue(), lock, FILE)])
    plan = plan_of(outcome, "group", ("host",))
    if plan.build is None:
        return [f"refused: {found.message}; {found.hint}" for found in plan.refusals]
    build = plan.build
    packages = {
        "to build": build.packages,
        "to run": build.runtime_packages,
        "at these versions": tuple(f"{name}={version}" for name, version in build.pinned_packages.items()),
        "to run, at these versions": tuple(f"{n}={version}" for n, version in build.pinned_runtime_packages.items()),
    }
    return [
        f"{build.engine} {build.version}",
        *(f"{what}: {' '.join(some)}" for what, some in packages.items() if some),
    ]
