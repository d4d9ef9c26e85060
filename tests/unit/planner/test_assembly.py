"""What a lock pins for a decided candidate: here the library that llama.cpp is compiled with for cut layers."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.lock import Lock, LockedSource
from rigup.operations.builds.source import name_of
from rigup.plan import Build
from tests.unit.planner.asking import NCCL, decided

LLAMA = {"model": "Llama-3.3-70B-Instruct", "quant": "Q4_K_M", "engine": "llama.cpp"}
CUT = {**LLAMA, "tensor_parallel": 4}
SOURCE = LockedSource(engine="llama.cpp", version="b11434", address="https://a/b", sha256="3" * 64, root="llama.cpp")


def built(service: dict[str, Any], lock: Lock, gpus: object = "4x RTX 3090") -> Build:
    build = decided(gpus, service, 128, lock).build
    assert build is not None
    return build


def name(build: Build) -> str:
    return name_of(build, "x86_64", "debian-12")


def test_what_cuts_layers_is_compiled_with_the_locked_nccl() -> None:
    before, build = built(CUT, Lock()), built(CUT, Lock(nccl=NCCL))
    wheel = "nvidia_nccl_cu13-2.28.9-py3-none-manylinux_2_18_x86_64.whl"
    assert build.own_library is not None
    assert (build.own_library.wheel, build.own_library.sha256) == (wheel, NCCL.files[wheel])
    assert [flag for flag in before.flags if flag not in build.flags] == ["-DGGML_CUDA_NCCL=OFF"]
    assert [flag for flag in build.flags if flag not in before.flags] == [
        "-DGGML_CUDA_NCCL=ON",
        "-DNCCL_INCLUDE_DIR={library}/include",
        "-DNCCL_LIBRARY={library}/lib/libnccl.so.2",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
        "-DCMAKE_INSTALL_RPATH=$ORIGIN",
        "-DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON",
    ]
    assert (build.targets, build.packages, build.cmake) == (before.targets, before.packages, before.cmake)
    assert name(build) != name(before)


def test_another_nccl_is_another_build() -> None:
    wheel, *_ = NCCL.files
    other = NCCL.model_copy(update={"files": {**NCCL.files, wheel: "9" * 64}})
    assert name(built(CUT, Lock(nccl=other))) != name(built(CUT, Lock(nccl=NCCL)))


@pytest.mark.parametrize(
    ("gpus", "service"),
    [
        ("4x RTX 3090", LLAMA),
        ("RTX 3090", {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}),
        ([], {"model": "SmolLM2-135M-Instruct"}),
        ("4x RTX 3090", {**CUT, "build": "image"}),
        (
            "4x RTX PRO 6000 Blackwell Workstation Edition",
            {**LLAMA, "engine": "vllm", "quant": None, "tensor_parallel": 4},
        ),
    ],
)
def test_nothing_else_has_nccl_or_another_name_for_it(gpus: object, service: dict[str, Any]) -> None:
    with_it, without = (built(service, lock, gpus) for lock in (Lock(nccl=NCCL), Lock()))
    assert with_it == without
    assert with_it.library is None


def test_a_lock_without_nccl_is_planned_as_before_and_says_so() -> None:
    lock = Lock(sources=(SOURCE,))
    plan = decided("4x RTX 3090", CUT, 128, lock)
    assert plan.verdict == "ok" and plan.build is not None and plan.build.own_library is None
    assert name(plan.build) == name(built(LLAMA, lock))
    (said,) = (finding for finding in plan.warnings if finding.rule == "no-nccl")
    assert said.message.startswith("rigup.lock has no nvidia-nccl-cu13: ")
    assert said.hint == "run rigup lock"


@pytest.mark.parametrize(
    ("service", "lock"),
    [(CUT, Lock(sources=(SOURCE,), nccl=NCCL)), (LLAMA, Lock(sources=(SOURCE,))), (CUT, Lock())],
    ids=["locked", "layers stay whole", "nothing is locked yet"],
)
def test_nccl_is_not_missed(service: dict[str, Any], lock: Lock) -> None:
    plan = decided("4x RTX 3090", service, 128, lock)
    assert not [each for each in plan.warnings if each.rule == "no-nccl"]
