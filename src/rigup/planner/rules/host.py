"""What the engine's build needs of the host: glibc, Python and a driver, or a podman that makes a unit of an image."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.catalogue.systems import system_facts
from rigup.catalogue.tools.containers import container_facts
from rigup.catalogue.versions import version_key
from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns


@refuses("glibc", "the manylinux tag of the engine's wheel; package libc6 of each Debian and Ubuntu release")
def glibc(candidate: Candidate) -> Iterator[Complaint]:
    """The host's C library must be at least as new as the wheel requires."""
    needed = candidate.release.glibc
    if candidate.build == "image" or not needed or candidate.rig.os is None:
        return
    there = system_facts().system(candidate.rig.os)
    if there and version_key(there.glibc) < version_key(needed):
        yield (
            f"the wheel of {engine_name(candidate)} needs glibc {needed}; {there.os} has {there.glibc}",
            f"use {_newer_than(needed)}, or a version whose wheel needs an older glibc",
        )


@refuses("python", "the recipe of the engine's environment in the catalogue; package python3 of each release")
def python(candidate: Candidate) -> Iterator[Complaint]:
    """An environment on the host's own Python needs the version of its wheels; otherwise uv installs one."""
    if candidate.build != "wheel" or candidate.rig.os is None:
        return
    recipe = candidate.release.environment("cuda" if candidate.gpus else "cpu")
    there = system_facts().system(candidate.rig.os)
    if recipe is None or recipe.python_from == "uv" or there is None or there.python == recipe.python:
        return
    fitting = " or ".join(known.os for known in system_facts().systems if known.python == recipe.python)
    yield (
        f"the build of {engine_name(candidate)} for this rig needs Python {recipe.python} on the host; "
        f"{there.os} has {there.python}",
        f"use {fitting}, or llama.cpp",
    )


@warns("kernel-compiler", "docs/decisions/0017: no package on the index has nvcc for the CUDA 12 of these wheels")
def kernel_compiler(candidate: Candidate) -> Iterator[Complaint]:
    """Wheels whose packages bring no compiler serve without the GPU kernels that the engine compiles, or not at all."""
    recipe = candidate.release.environment("cuda")
    if candidate.build != "wheel" or not candidate.gpus or recipe is None or recipe.compiler is not None:
        return
    later = (known for known in candidate.engine.versions if known.key > candidate.release.key)
    first = next((known for known in later if (other := known.environment("cuda")) and other.compiler), None)
    yield (
        f"{engine_name(candidate)} as wheels has no compiler for CUDA {candidate.release.cuda}: it starts without the "
        "GPU kernels that it would compile (FlashInfer, DeepGEMM), or not at all",
        f"set version to {first.version} or later, or build to image" if first else "set build to image",
    )


@warns("driver-floor", "docs.nvidia.com/deploy/cuda-compatibility; the first driver branch of each card")
def driver_floor(candidate: Candidate) -> Iterator[Complaint]:
    """If the lock pins no driver, the installed one must suit the engine's CUDA and the cards."""
    needs = candidate.release.cuda_needs
    if needs is None or not candidate.gpus or candidate.driver_locked:
        return
    branch = max(needs.driver, *(gpu.minimum_driver_branch or 0 for gpu in candidate.gpus))
    yield f"needs NVIDIA driver {branch} or later (CUDA {candidate.release.cuda})", ""


@warns(
    "sglang-host-memory", "two reports of SGLang 0.5.9 with NVFP4: killed with 32 GB of host memory, works with 128 GB"
)
def sglang_host_memory(candidate: Candidate) -> Iterator[Complaint]:
    """SGLang has been killed while loading NVFP4 on hosts with little memory."""
    there = candidate.rig.host_memory_gib
    if candidate.engine.name != "sglang" or candidate.checkpoint.weight_format != "nvfp4":
        return
    if there is None or there < 128:
        declared = f"this rig declares {there:g} GiB" if there is not None else "this rig declares none"
        yield (
            f"SGLang has been killed while loading NVFP4 on hosts with less than 128 GB of memory; {declared}",
            "set rig.host_memory_gib if the host has more, or use vLLM",
        )


@refuses("image", "the images that each engine's makers publish, in the catalogue with their sources")
def image(candidate: Candidate) -> Iterator[Complaint]:
    """An image build needs an image from the engine's makers, for GPUs or for CPUs as the rig has them."""
    if candidate.build == "image" and candidate.release.image(candidate.rig.variant) is None:
        machines = "GPUs" if candidate.rig.gpus else "machines without a GPU"
        yield (
            f"the catalogue has no image of {engine_name(candidate)} for {machines}",
            f'leave build out, which means "{candidate.engine.method}", or add it to the engine\'s file',
        )


@refuses("quadlet", container_facts().podman.source)
def quadlet(candidate: Candidate) -> Iterator[Complaint]:
    """An image build needs an operating system whose podman has Quadlet."""
    os = candidate.rig.os
    if candidate.build == "image" and os is not None and (problem := without_quadlet(os)):
        yield problem


def without_quadlet(os: str) -> tuple[str, str] | None:
    """Why an operating system cannot run an image as a unit, and what to do; None if it can."""
    podman = container_facts().podman
    if podman.has_quadlet(os):
        return None
    there = f"has podman {podman.versions[os]}" if os in podman.versions else "has no podman that rigup supports"
    enough = " or ".join(known for known in podman.versions if podman.has_quadlet(known))
    return (
        f"{os} {there}; units for containers (Quadlet) need {podman.quadlet_since} or later",
        f"use {enough}, or leave build out to install the engine without a container",
    )


def _newer_than(needed: str) -> str:
    return " or ".join(known.os for known in system_facts().systems if version_key(known.glibc) >= version_key(needed))
