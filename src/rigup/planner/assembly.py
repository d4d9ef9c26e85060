"""Puts a decided candidate, or a refusal, into a Plan."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.catalogue.containers import container_facts
from rigup.environment import Variant
from rigup.lock import Lock
from rigup.node import Node
from rigup.plan import Alternative, Build, Checkpoint, Finding, Plan
from rigup.planner.candidate import Candidate
from rigup.planner.driver import made_for
from rigup.planner.enumeration import Question
from rigup.planner.figures import figures_of
from rigup.planner.locked import entry_of
from rigup.planner.rules import check
from rigup.planner.speed import decode_speed
from rigup.planner.spreading import peer_ports


def assembled(host: str, group: str, candidate: Candidate, lock: Lock) -> Plan:
    """The plan that a settled candidate is, without command and environment."""
    concurrency = candidate.service.concurrency
    judged = check(candidate)
    return Plan(
        host=host,
        group=group,
        verdict="ok",
        rig=candidate.rig,
        service=candidate.service,
        build=build_of(candidate, lock),
        checkpoint=checkpoint_of(candidate, lock),
        parallel=candidate.parallel,
        context=candidate.context,
        kv_cache_type=candidate.kv_cache_type,
        kv_tokens=candidate.kv_tokens,
        memory=candidate.memory,
        host_memory_mib=candidate.host_memory_mib,
        decode_tokens_per_second=decode_speed(candidate),
        decode_at_concurrency=decode_speed(candidate, concurrency) if concurrency > 1 else None,
        warnings=judged.warnings,
        silenced=judged.silenced,
        figures=figures_of(candidate),
    )


def part_of(plan: Plan, candidate: Candidate, hosts: Sequence[str], rank: int) -> Plan:
    """What the host of that rank has of a service that spans `hosts`; the plan itself where there is only one.

    llama.cpp's other hosts hold no files: the head reads the weights and sends each its layers.
    """
    if len(hosts) == 1:
        return plan
    engine = candidate.engine.name
    part: dict[str, object] = {
        "host": hosts[rank],
        "nodes": tuple(Node(host=host) for host in hosts),
        "rank": rank,
        "memory": candidate.memory_of(rank),
        "host_memory_mib": candidate.host_memory_of(rank),
        "peer_ports": peer_ports(engine, candidate.service, len(hosts)),
        "peer_traffic": engine != "llama.cpp",
    }
    if rank and engine == "llama.cpp":
        part["checkpoint"] = None
    return plan.model_copy(update=part)


def refused(
    host: str, group: str, question: Question, findings: tuple[Finding, ...], alternatives: tuple[Alternative, ...]
) -> Plan:
    """The plan that a refusal is."""
    return Plan(
        host=host,
        group=group,
        verdict="refused",
        rig=question.rig,
        service=question.service,
        refusals=findings,
        alternatives=alternatives,
    )


def build_of(candidate: Candidate, lock: Lock) -> Build:
    """The pinned build. A build from source is made for exactly the compute capabilities of the rig."""
    engine, version, architecture = candidate.engine.name, candidate.version, candidate.rig.architecture
    variant: Variant = "cuda" if candidate.rig.gpus else "cpu"
    installed = candidate.build == "wheel"
    # An archive of an engine that is not compiled holds its tuner, which no build depends on.
    source = lock.source(engine, version) if candidate.build == "source" else None
    pins = lock.cuda_toolkit.packages if lock.cuda_toolkit else {}
    capabilities, several = candidate.rig.compute_capabilities, candidate.hosts > 1
    recipe = candidate.release.recipe(capabilities, several) if candidate.build == "source" else None
    packaged = candidate.release.environment(variant) if installed else None
    needed = recipe.packages if recipe else ()
    runtime = recipe.runtime_packages if recipe else packaged.runtime_packages if packaged else ()
    return Build(
        engine=engine,
        version=version,
        method=candidate.build,
        address=source.address if source else None,
        sha256=source.sha256 if source else None,
        root=source.root if source else "",
        flags=recipe.flags if recipe else (),
        targets=recipe.targets if recipe else (),
        packages=tuple(name for name in needed if name not in pins),
        runtime_packages=tuple(name for name in runtime if name not in pins) or container_packages(candidate),
        pinned_packages=dict(pins) if any(name in pins for name in needed) else {},
        pinned_runtime_packages={name: pins[name] for name in runtime if name in pins},
        variant=variant,
        architecture=architecture,
        environment=lock.environment(engine, version, variant, architecture) if installed else None,
        uv=lock.uv if installed else None,
        provides=packaged.provides if packaged else {},
        image=lock.image(engine, version, variant, architecture) if candidate.build == "image" else None,
        made_for=made_for(candidate.rig, candidate.release, candidate.build, lock),
    )


def container_packages(candidate: Candidate) -> tuple[str, ...]:
    """The Debian packages that run an image."""
    return (container_facts().podman.package,) if candidate.build == "image" else ()


def checkpoint_of(candidate: Candidate, lock: Lock) -> Checkpoint:
    """The files that are served, from the lock where it pins them."""
    entry = candidate.checkpoint
    locked = lock.checkpoint(entry.repo, entry.quant)
    return Checkpoint(
        repo=entry.repo,
        quant=entry.quant,
        bytes=locked.bytes if locked else entry.bytes,
        revision=locked.revision if locked else None,
        files=locked.files if locked else (),
        entry=entry_of(entry, locked),
    )
