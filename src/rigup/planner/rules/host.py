"""What the engine's build needs from the host: glibc, Python and a driver."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns

# Versions in each supported system: packages libc6 and python3.
GLIBC = {"debian-12": (2, 36), "debian-13": (2, 41), "ubuntu-22.04": (2, 35), "ubuntu-24.04": (2, 39)}
PYTHON = {"debian-12": "3.11", "debian-13": "3.13", "ubuntu-22.04": "3.10", "ubuntu-24.04": "3.12"}


@refuses("glibc", "the manylinux tag of the engine's wheel; package libc6 of each Debian and Ubuntu release")
def glibc(candidate: Candidate) -> Iterator[Complaint]:
    """The host's C library must be at least as new as the wheel requires."""
    there, needed = GLIBC.get(candidate.rig.os or ""), candidate.release.glibc
    if candidate.build != "image" and there and needed and there < _numbers(needed):
        yield (
            f"the wheel of {engine_name(candidate)} needs glibc {needed}; {candidate.rig.os} has {_text(there)}",
            f"use {_newer_than(needed)}, or a version whose wheel needs an older glibc",
        )


@refuses("python", "the recipe of the engine's environment in the catalogue; package python3 of each release")
def python(candidate: Candidate) -> Iterator[Complaint]:
    """An environment on the host's own Python needs the version of its wheels; otherwise uv installs one."""
    recipe = candidate.release.environment("cuda" if candidate.gpus else "cpu")
    there = PYTHON.get(candidate.rig.os or "")
    if candidate.build != "wheel" or recipe is None or recipe.python_from == "uv" or there in (None, recipe.python):
        return
    fitting = " or ".join(name for name, version in PYTHON.items() if version == recipe.python)
    yield (
        f"the build of {engine_name(candidate)} for this rig needs Python {recipe.python} on the host; "
        f"{candidate.rig.os} has {there}",
        f"use {fitting}, or llama.cpp",
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
    if candidate.engine.name != "sglang" or candidate.checkpoint.scheme != "nvfp4":
        return
    if there is None or there < 128:
        declared = f"this rig declares {there:g} GiB" if there is not None else "this rig declares none"
        yield (
            f"SGLang has been killed while loading NVFP4 on hosts with less than 128 GB of memory; {declared}",
            "set rig.host_memory_gib if the host has more, or use vLLM",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _text(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _newer_than(needed: str) -> str:
    return " or ".join(name for name, there in GLIBC.items() if there >= _numbers(needed))
