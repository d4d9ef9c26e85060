"""What the lock pins for a decided candidate: its build and its checkpoint."""

from __future__ import annotations

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.tools.containers import container_facts
from rigup.lock import Lock
from rigup.plan import Build, Checkpoint
from rigup.planner.candidate import Candidate
from rigup.planner.driver import made_for
from rigup.planner.inputs.locked import entry_of


def build_of(candidate: Candidate, lock: Lock) -> Build:
    """The pinned build. A build from source is compiled for exactly the compute capabilities of the rig."""
    engine, version = candidate.engine.name, candidate.version
    variant, architecture = candidate.rig.variant, candidate.rig.architecture
    installed = candidate.build == "wheel"
    # A source archive of an engine that is not compiled only holds its tuner, which the build does not need.
    source = lock.source(engine, version) if candidate.build == "source" else None
    pins = lock.cuda_toolkit.packages if lock.cuda_toolkit else {}
    # Rehearsals on one host and over several share a quick build, so that it has the RPC backend either way.
    capabilities, several = candidate.rig.compute_capabilities, candidate.hosts > 1 or candidate.service.quick_build
    toolkit = lock.cuda_toolkit.version if lock.cuda_toolkit else None
    compiled = candidate.build == "source"
    library = candidate.release.nccl if compiled and capabilities and candidate.parallel.tensor > 1 else None
    library = library.as_locked(lock.nccl, architecture) if library else None
    given = library if library and library.wheel else None
    recipe = candidate.release.recipe(capabilities, several, toolkit, given) if compiled else None
    cmake = candidate.release.quick_cmake if candidate.service.quick_build else candidate.release.cmake
    packaged = candidate.release.environment(variant) if installed else None
    needed = recipe.packages if recipe else ()
    runtime = recipe.runtime_packages if recipe else packaged.runtime_packages if packaged else ()
    compiler = packaged.compiler if packaged and variant == "cuda" else None
    if candidate.build == "image":
        runtime = (container_facts().podman.package,)
    return Build(
        engine=engine,
        version=version,
        method=candidate.build,
        address=source.address if source else None,
        sha256=source.sha256 if source else None,
        root=source.root if source else "",
        flags=recipe.flags if recipe else (),
        cmake=cmake if recipe else "",
        targets=recipe.targets if recipe else (),
        packages=tuple(name for name in needed if name not in pins),
        runtime_packages=tuple(name for name in runtime if name not in pins),
        pinned_packages=dict(pins) if any(name in pins for name in needed) else {},
        pinned_runtime_packages={name: pins[name] for name in runtime if name in pins},
        variant=variant,
        architecture=architecture,
        environment=lock.environment(engine, version, variant, architecture) if installed else None,
        uv=lock.uv if installed else None,
        provides=packaged.provides if packaged else {},
        image=lock.image(engine, version, variant, architecture) if candidate.build == "image" else None,
        compiler=compiler.for_rig(capabilities) if compiler else None,
        made_for=made_for(candidate.rig, candidate.release, candidate.build, lock),
        library=library,
    )


def toolkit_of(build: Build) -> str | None:
    """The version of the locked CUDA toolkit, if the build needs packages of it."""
    pinned = build.pinned_packages or build.pinned_runtime_packages
    return build.made_for.cuda if pinned and build.made_for else None


def checkpoint_of(entry: CheckpointEntry, lock: Lock) -> Checkpoint:
    """The files of a checkpoint, as the lock pins them."""
    locked = lock.checkpoint(entry.repo, entry.quant)
    return Checkpoint(
        repo=entry.repo,
        quant=entry.quant,
        bytes=locked.bytes if locked else entry.bytes,
        revision=locked.revision if locked else None,
        files=locked.files if locked else (),
        entry=entry_of(entry, locked),
        location=locked.location if locked else entry.location,
    )
