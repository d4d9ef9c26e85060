"""Which NVIDIA driver a rig gets: the lock's version, the flavour for its cards, and whether it is new enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date, timedelta

from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.catalogue.drivers import SupportedSystem, driver_facts
from rigup.catalogue.engines import EngineVersion
from rigup.catalogue.versions import version_key
from rigup.lock import Lock, LockedCudaToolkit, LockedDriver
from rigup.plan import Build, DriverPlan, Finding, MadeFor
from rigup.rig import Gpu, Rig
from rigup.service import BuildMethod
from rigup.units import compute_capability

NEAR_THE_END = timedelta(days=90)
"""How long before the end of a branch's support a plan warns of it."""


def driver_plan(rig: Rig, lock: Lock, engine_floor: int = 0) -> DriverPlan | None:
    """The driver of a rig; None if rigup does not manage it: no GPU, none in the lock, kept, or from the GPU's vendor.

    engine_floor: the lowest driver branch that the engine's CUDA accepts.
    A GPU with unified memory (GB10) has a vendor's system, whose driver belongs to its kernel.
    """
    if not _installs(rig) or lock.driver is None or rig.keep_driver:
        return None
    return DriverPlan(
        version=lock.driver.version,
        branch=lock.driver.branch,
        # Since Turing NVIDIA's default is the open modules, which Blackwell requires.
        flavour="open" if all(_takes_open_modules(gpu) for gpu in rig.gpus) else "proprietary",
        floor=driver_floor(rig, engine_floor),
        fabric_manager=any(gpu.nvswitch for gpu in rig.gpus),
        subnet_manager=any(gpu.nvswitch and gpu.capability >= (10, 0) for gpu in rig.gpus),
    )


def driver_floor(rig: Rig, engine_floor: int) -> int:
    """The lowest driver branch that the engine's CUDA and the cards accept; 0 without a GPU."""
    return max(engine_floor, *(gpu.minimum_driver_branch or 0 for gpu in rig.gpus)) if rig.gpus else 0


def made_for(rig: Rig, release: EngineVersion, method: BuildMethod, lock: Lock) -> MadeFor | None:
    """The CUDA version and GPUs that a build of this release is made for; None for one without CUDA."""
    if not rig.gpus or release.cuda is None:
        return None
    if method != "source":
        return MadeFor(cuda=release.cuda)
    toolkit = lock.cuda_toolkit.version if lock.cuda_toolkit else release.cuda
    return MadeFor(cuda=toolkit, compute_capabilities=rig.compute_capabilities)


def driver_refusals(rig: Rig, driver: DriverPlan | None) -> Iterator[Finding]:
    """The reasons why the locked driver does not suit this rig."""
    if driver is None:
        return
    if int(driver.branch) < driver.floor:
        yield Finding(
            rule="driver-too-old",
            message=f"rigup.lock pins driver {driver.version}, but the engine and GPUs need {driver.floor} or later",
            hint=f"run rigup lock --upgrade driver={driver.floor}, or choose an engine version that accepts "
            f"{driver.branch}",
            source="docs.nvidia.com/deploy/cuda-compatibility; the first driver branch of each card",
        )
    known = nvidia_versions().branch(int(driver.branch))
    undriven = [gpu for gpu in rig.gpus if known and gpu.capability < compute_capability(known.since)]
    if known and undriven:
        yield Finding(
            rule="driver-too-new",
            message=f"rigup.lock pins driver {driver.version}, but branch {driver.branch} drives cards from compute "
            f"capability {known.since} on, and {undriven[0].name} has {undriven[0].compute_capability}",
            hint="run rigup lock --upgrade driver=580, the last branch for Maxwell, Pascal and Volta",
            source=known.source,
        )
    old = [gpu for gpu in rig.gpus if not _takes_open_modules(gpu)]
    required = [gpu for gpu in rig.gpus if gpu.open_kernel_module == "required"]
    if old and required:
        yield Finding(
            rule="driver-flavour",
            message=f"{required[0].name} needs the open kernel modules, but {old[0].name} does not support them",
            hint="put them in different machines",
            source=driver_facts().modules.source,
        )


def repository_refusals(os: str, driver: DriverPlan | None, toolkit: str | None) -> Iterator[Finding]:
    """What the lock pins although NVIDIA's repository for this system has no such packages.

    toolkit: the version of the CUDA toolkit, if its packages are installed.
    """
    there = driver_facts().distribution(os)
    if there is None:
        return
    if driver is not None and int(driver.branch) < there.first_branch:
        message = f"no driver before branch {there.first_branch}; rigup.lock pins {driver.version}"
        yield _not_there(there, message, f"driver={there.first_branch}")
    if toolkit and there.first_toolkit and version_key(toolkit) < version_key(there.first_toolkit):
        message = f"no CUDA toolkit before {there.first_toolkit}; rigup.lock pins {toolkit}"
        yield _not_there(there, message, f"cuda-toolkit={there.first_toolkit}")


def driver_for(systems: Iterable[str], kept: LockedDriver | None) -> LockedDriver:
    """The driver to lock for rigs with these systems: the kept one or the default, if their repositories have it.

    Otherwise the newest known one of the first branch that they all have.
    """
    known = [there for os in systems if (there := driver_facts().distribution(os))]
    least = max((there.first_branch for there in known), default=0)
    for version in (kept.version if kept else "", nvidia_versions().driver.default):
        if version and int(version.partition(".")[0]) >= least:
            return locked_driver(version)
    return locked_driver(nvidia_versions().driver_version(str(least)) or nvidia_versions().driver.versions[-1])


def toolkit_for(systems: Iterable[str], kept: LockedCudaToolkit | None) -> LockedCudaToolkit | None:
    """The CUDA toolkit to lock, like `driver_for`."""
    known = [there for os in systems if (there := driver_facts().distribution(os)) and there.first_toolkit]
    least = max((there.first_toolkit for there in known), default="0", key=version_key)
    for toolkit in (kept, nvidia_versions().cuda_toolkit()):
        if toolkit and version_key(toolkit.version) >= version_key(least):
            return toolkit
    return nvidia_versions().cuda_toolkit(least)


def branch_warnings(rig: Rig, driver: DriverPlan | None, today: date) -> Iterator[Finding]:
    """Whether NVIDIA's support of the driver's branch has ended, or ends soon."""
    known = nvidia_versions().branch(int(driver.branch)) if driver else None
    if driver is None or known is None or not (known.ended or known.until):
        return
    if known.until is not None and known.until - today > NEAR_THE_END:
        return
    over = known.until is None or known.until < today
    when = f" in {known.until:%B %Y}" if known.until else ""
    yield Finding(
        rule="driver-branch",
        message=f"NVIDIA's support of driver branch {driver.branch} ({known.kind}) {'ended' if over else 'ends'}{when}",
        hint=_longer_supported(rig, driver, today),
        source=known.source,
    )


def toolkit_warnings(build: Build) -> Iterator[Finding]:
    """What NVIDIA says is wrong in the CUDA libraries that a build uses."""
    known = nvidia_versions().faulty_toolkit(build.made_for.cuda) if build.made_for else None
    if known is None:
        return
    better = nvidia_versions().sound_toolkit_after(known.version)
    series = better.version.rpartition(".")[0] if better else ""
    yield Finding(
        rule="cuda-fault",
        message=f"the build uses CUDA {known.version}: {known.fault}",
        hint=f"run rigup lock --upgrade cuda-toolkit={series}"
        if build.method == "source" and series
        else "choose an engine version for another CUDA",
        source=known.source,
    )


def compiler_warnings(build: Build) -> Iterator[Finding]:
    """What a build loses whose locked packages lack the compiler of its GPU kernels."""
    wanted = build.compiler
    if wanted and build.environment and not build.own_compiler:
        yield Finding(
            rule="no-kernel-compiler",
            message=f"the packages in rigup.lock have no compiler for CUDA {wanted.series}, which {build.engine} "
            f"{build.version} compiles GPU kernels with: it starts without FlashInfer and DeepGEMM, or not at all",
            hint="run rigup lock",
            source=wanted.source,
        )


def library_warnings(build: Build) -> Iterator[Finding]:
    """What a build loses without the library that it should be compiled with."""
    wanted = build.library
    if wanted and build.sha256 and not build.own_library:
        yield Finding(
            rule="no-nccl",
            message=f"rigup.lock has no {wanted.project}: {build.engine} is compiled without NCCL, and adds up what "
            "the GPUs compute in its own way",
            hint="run rigup lock",
            source=wanted.source,
        )


def _longer_supported(rig: Rig, driver: DriverPlan, today: date) -> str:
    """A hint that names the branch with the longest support; "" if there is none that suits the rig."""
    there = driver_facts().distribution(rig.os or "")
    least = max(driver.floor, there.first_branch if there else 0)
    living = [
        (known.until, known)
        for known in nvidia_versions().branches
        if known.until is not None
        and known.branch >= least
        and known.until - today > NEAR_THE_END
        and all(gpu.capability >= compute_capability(known.since) for gpu in rig.gpus)
    ]
    if not living:
        return ""
    _, best = max(living, key=lambda entry: entry[0])
    return f"run rigup lock --upgrade driver={best.branch} ({best.support})"


def _not_there(there: SupportedSystem, message: str, upgrade: str) -> Finding:
    return Finding(
        rule="driver-repository",
        message=f"NVIDIA's repository for {there.os} has {message}",
        hint=f"run rigup lock --upgrade {upgrade}",
        source=there.source,
    )


def _installs(rig: Rig) -> bool:
    return bool(rig.gpus) and not any(gpu.unified_memory for gpu in rig.gpus)


def _takes_open_modules(gpu: Gpu) -> bool:
    return gpu.capability >= compute_capability(driver_facts().modules.open_from)
