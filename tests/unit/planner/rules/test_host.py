"""What the host must bring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.planner.rules import host
from tests.unit.planner.rules.builder import PRO_6000, candidate

FP8, NVFP4 = "MiniMaxAI/MiniMax-M2.5", "nvidia/MiniMax-M2.5-NVFP4"


def test_glibc_is_compared_as_numbers() -> None:
    old = candidate("4x H200", FP8, "vllm", "0.20.2", rig={"os": "ubuntu-22.04"})
    assert host.glibc(old) == ()
    newer = old.release.model_copy(update={"glibc": "2.100"})
    (finding,) = host.glibc(replace(old, release=newer))
    assert finding.message == "the wheel of vLLM 0.20.2 needs glibc 2.100; ubuntu-22.04 has 2.35"


def test_glibc_hint_names_the_systems_that_are_new_enough() -> None:
    asked = candidate("4x H200", FP8, "vllm", "0.20.2", rig={"os": "ubuntu-22.04"})
    (finding,) = host.glibc(replace(asked, release=asked.release.model_copy(update={"glibc": "2.39"})))
    assert finding.hint.startswith("use debian-13 or ubuntu-24.04")


@pytest.mark.parametrize("system", ["ubuntu-22.04", "debian-12", "debian-13", "ubuntu-26.04"])
def test_uv_brings_python_whatever_the_system_has(system: str) -> None:
    assert host.python(candidate("4x H200", FP8, "vllm", "0.33.0", rig={"os": system})) == ()


def test_an_environment_on_the_hosts_own_python_needs_that_one() -> None:
    on_cpu = candidate("none", FP8, "vllm", "0.32.0", rig={"os": "debian-13"})
    (finding,) = host.python(on_cpu)
    assert finding.message == (
        "the build of vLLM 0.32.0 for this rig needs Python 3.11 on the host; debian-13 has 3.13"
    )
    assert finding.hint == "use debian-12, or llama.cpp"
    assert host.python(candidate("none", FP8, "vllm", "0.32.0", rig={"os": "debian-12"})) == ()
    assert host.python(replace(on_cpu, build="image")) == ()


def test_nothing_is_said_about_a_system_that_is_not_declared() -> None:
    asked = candidate("4x H200", FP8)
    assert host.python(asked) == ()
    assert host.glibc(asked) == ()


@pytest.mark.parametrize(("version", "branch"), [("0.19.1", 525), ("0.33.0", 580)])
def test_the_driver_floor_follows_the_wheels_cuda(version: str, branch: int) -> None:
    (finding,) = host.driver_floor(candidate("4x RTX 3090", FP8, "vllm", version))
    assert f"driver {branch} or later" in finding.message


def test_a_card_may_need_a_newer_driver_than_cuda_does() -> None:
    asked = candidate("4x B200", FP8, "vllm", "0.19.1")
    floor = asked.gpus[0].minimum_driver_branch
    assert floor is not None and floor > 525
    (finding,) = host.driver_floor(asked)
    assert f"driver {floor} or later" in finding.message


def test_a_driver_that_the_lock_pins_is_not_news() -> None:
    asked = candidate("4x RTX 3090", FP8, "vllm", "0.33.0")
    assert host.driver_floor(replace(asked, driver_locked=True)) == ()


@pytest.mark.parametrize(("memory", "warned"), [(64, True), (None, True), (128, False), (256, False)])
def test_sglang_with_nvfp4_wants_128_gb_of_host_memory(memory: int | None, warned: bool) -> None:
    rig = {} if memory is None else {"host_memory_gib": memory}
    asked = candidate(f"2x {PRO_6000}", NVFP4, "sglang", rig=rig, parallel={"tensor": 2})
    assert bool(host.sglang_host_memory(asked)) is warned
    assert host.sglang_host_memory(candidate(f"2x {PRO_6000}", NVFP4, "vllm", rig=rig)) == ()


@pytest.mark.parametrize(
    ("name", "version", "first"),
    [
        ("sglang", "0.5.10.post1", "0.5.11"),
        ("sglang", "0.5.11", None),
        ("vllm", "0.19.1", "0.20.0"),
        ("vllm", "0.20.0", None),
    ],
)
def test_wheels_without_a_compiler_are_warned_of_with_a_version_that_has_one(
    name: str, version: str, first: str | None
) -> None:
    asked = candidate("4x H200", "MiniMaxAI/MiniMax-M2.5", name, version)
    found = host.kernel_compiler(asked)
    assert [finding.hint.split()[3] for finding in found] == ([first] if first else [])
    assert host.kernel_compiler(replace(asked, build="image")) == ()
