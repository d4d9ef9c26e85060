"""A build's name holds everything that the binary depends on."""

from __future__ import annotations

import pytest

from rigup.artifacts import CudaCompiler, LockedEnvironment, LockedUv
from rigup.lock import Lock, LockedCudaToolkit
from rigup.operations.builds.source import compile_job, name_of
from rigup.plan import Build, MadeFor
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service
from tests.unit.planner.asking import FILE, NCCL, catalogue, decided

BUILD = Build(engine="llama.cpp", version="b1", method="source", sha256="0" * 64, flags=("-DX=1",), targets=("t",))


def test_equal_builds_share_a_name() -> None:
    again = BUILD.model_copy(update={"packages": ("cmake",), "address": "https://elsewhere/x.tar.gz"})
    assert name_of(BUILD, "x86_64", "debian-12") == name_of(again, "x86_64", "debian-12")
    assert name_of(BUILD, "x86_64", "debian-12").startswith("llama.cpp-b1-")


@pytest.mark.parametrize(
    ("changed", "architecture", "os_release"),
    [
        ({"version": "b2"}, "x86_64", "debian-12"),
        ({"sha256": "1" * 64}, "x86_64", "debian-12"),
        ({"flags": ("-DX=2",)}, "x86_64", "debian-12"),
        ({"cmake": "set(X 2)"}, "x86_64", "debian-12"),
        ({"targets": ("t", "u")}, "x86_64", "debian-12"),
        ({}, "aarch64", "debian-12"),
        ({}, "x86_64", "debian-13"),
    ],
)
def test_whatever_the_binary_depends_on_changes_the_name(
    changed: dict[str, object], architecture: str, os_release: str
) -> None:
    other = name_of(BUILD.model_copy(update=changed), architecture, os_release)
    assert other != name_of(BUILD, "x86_64", "debian-12")


def planned(gpus: object, toolkit: str | None) -> Build:
    """The build of llama.cpp that a rig gets under a lock with this release of the toolkit."""
    packages = {"cuda-toolkit-13-0": toolkit, "cuda-cudart-13-0": "13.0.96"} if toolkit else {}
    lock = Lock(cuda_toolkit=LockedCudaToolkit(version=toolkit, packages=packages) if toolkit else None)
    rig = read_rig({"gpus": gpus}, FILE, catalogue())
    smol = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp"}
    (service,) = read_services({"chat": smol}, FILE, rig)
    build = plan_service("gpu1", "group", rig, service, catalogue(), lock).build
    assert build is not None
    return build


def test_another_toolkit_or_other_gpus_are_another_build() -> None:
    names = {
        name_of(planned(gpus, toolkit), "x86_64", "debian-12")
        for gpus in ("RTX 3090", "RTX 5090", ["RTX 3090", "RTX 5090"])
        for toolkit in ("13.0.1", "13.0.2")
    }
    assert len(names) == 6
    assert planned("RTX 3090", "13.0.2") == planned("4x RTX 3090", "13.0.2")


def test_a_build_says_what_it_is_made_for() -> None:
    mixed = planned(["RTX 5090", "RTX 3090"], "13.0.2")
    assert mixed.made_for == MadeFor(cuda="13.0.2", compute_capabilities=("8.6", "12.0"))
    assert mixed.model_dump(mode="json")["made_for"] == {"cuda": "13.0.2", "compute_capabilities": ["8.6", "12.0"]}
    assert planned("RTX 3090", None).made_for == MadeFor(cuda="13.0", compute_capabilities=("8.6",))
    assert planned([], "13.0.2").made_for is None


ENVIRONMENT = LockedEnvironment(
    engine="vllm", version="0.33.0", python="3.12.12", files={"a-1-py3-none-any.whl": "0" * 64}
)
INSTALLED = Build(
    engine="vllm",
    version="0.33.0",
    method="wheel",
    environment=ENVIRONMENT,
    uv=LockedUv(version="0.13.9", files={"uv-0.13.9-py3-none-any.whl": "1" * 64}),
)


COMPILER = CudaCompiler(
    package="nvidia-cuda-nvcc", series="13.0", folder="nvidia/cu13", compute_capabilities=("9.0",), source="test"
)
NVCC = {"nvidia_cuda_nvcc-13.0.88-py3-none-manylinux_2_17_x86_64.whl": "2" * 64}


def test_a_compiler_counts_if_the_lock_has_it_and_for_the_cards_that_it_compiles_for() -> None:
    def name(files: dict[str, str], **compiler: object) -> str:
        environment = ENVIRONMENT.model_copy(update={"files": {**ENVIRONMENT.files, **files}})
        changed = {"environment": environment, "compiler": COMPILER.model_copy(update=compiler)}
        return name_of(INSTALLED.model_copy(update=changed), "x86_64", "debian-12")

    assert name({}) == name_of(INSTALLED, "x86_64", "debian-12")
    assert name({"nvidia_cuda_nvcc-13.5.37-py3-none-any.whl": "2" * 64}) == name(
        {"nvidia_cuda_nvcc-13.5.37-py3-none-any.whl": "2" * 64}, compute_capabilities=("8.6",)
    )
    assert len({name(NVCC), name(NVCC, compute_capabilities=("8.6",)), name(NVCC, kernels=("a:b",))}) == 3
    assert name(NVCC) == name(NVCC, source="another")


def test_where_an_environment_comes_from_makes_no_difference() -> None:
    address = {"addresses": {"a-1-py3-none-any.whl": "https://example.org/a-1-py3-none-any.whl"}}
    again = INSTALLED.model_copy(
        update={
            "environment": ENVIRONMENT.model_copy(update=address),
            "uv": LockedUv(version="0.14.0", files={}),
            "runtime_packages": ("gcc",),
        }
    )
    assert name_of(INSTALLED, "x86_64", "debian-12") == name_of(again, "x86_64", "debian-12")


@pytest.mark.parametrize(
    ("build", "environment"),
    [
        ({}, {"files": {"a-1-py3-none-any.whl": "1" * 64}}),
        ({}, {"files": {"a-2-py3-none-any.whl": "0" * 64}}),
        ({}, {"python": "3.12.13"}),
        ({}, {"variant": "cpu"}),
        ({"provides": {"b": "1"}}, {}),
    ],
)
def test_another_file_or_python_is_another_environment(
    build: dict[str, object], environment: dict[str, object]
) -> None:
    changed = INSTALLED.model_copy(update={**build, "environment": ENVIRONMENT.model_copy(update=environment)})
    assert name_of(changed, "x86_64", "debian-12") != name_of(INSTALLED, "x86_64", "debian-12")


def test_the_job_of_a_build_names_the_wheel_of_its_library() -> None:
    def library(lock: Lock) -> object:
        cut = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp", "tensor_parallel": 2}
        build = decided("2x RTX 3090", cut, 128, lock).build
        assert build is not None
        words = (("bin/llama-server",), "7")
        return compile_job(build, "name", "archive", "/wheels/nccl.whl", words, "box", "work", "result")["library"]

    sha256 = NCCL.files[str(NCCL.wheel("x86_64"))]
    there = {"path": "/wheels/nccl.whl", "sha256": sha256, "folder": "nvidia/nccl", "file": "lib/libnccl.so.2"}
    assert (library(Lock(nccl=NCCL)), library(Lock())) == (there, None)
