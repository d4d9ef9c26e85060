"""Turns a decision into plans: the engine's words for every host of a service, then the plan of each host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rigup.commands.command import Command, command
from rigup.commands.moe_configs import moe_folder, variables
from rigup.commands.option_check import unknown_options
from rigup.node import Node
from rigup.plan import MoeFolder, Plan
from rigup.planner.candidate import mib
from rigup.planner.decision import Decision, Refusal
from rigup.planner.multinode.ports import peer_ports


class Rendered(NamedTuple):
    """A decision with its command lines. commands: one for each rank; they do not depend on which hosts take the ranks.

    moe_folder: the tuned kernels for the service.
    """

    decision: Decision
    commands: tuple[Command, ...]
    moe_folder: MoeFolder | None


def rendered(decision: Decision) -> Rendered | Refusal:
    """The decision with its commands; a refusal if the pinned build does not know a name in them."""
    candidate = decision.candidate
    commands = tuple(command(candidate, decision.checkpoint, rank, decision.draft) for rank in range(candidate.hosts))
    if unknown := dict.fromkeys(name for each in commands for name in unknown_options(candidate, each)):
        return Refusal(candidate.rig, candidate.service, tuple(unknown))
    return Rendered(decision, commands, moe_folder(candidate, decision.build))


def plan_of(outcome: Rendered | Refusal, group: str, hosts: Sequence[str], rank: int = 0) -> Plan:
    """The plan of one service for the host of a rank.

    hosts: all hosts of the service, by rank; raises ValueError if their number is not the rig's. llama.cpp's workers
    hold no files, because the head reads the weights and sends each worker its layers.
    """
    if isinstance(outcome, Refusal):
        return Plan(
            host=hosts[rank],
            group=group,
            verdict="refused",
            rig=outcome.rig,
            service=outcome.service,
            refusals=outcome.findings,
            alternatives=outcome.alternatives,
        )
    decision, candidate, words = outcome.decision, outcome.decision.candidate, outcome.commands[rank]
    if len(hosts) != candidate.hosts:
        raise ValueError(f"{len(hosts)} hosts, but a service of this rig spans {candidate.hosts}")
    engine, several = candidate.engine.name, candidate.hosts > 1
    # The user's value of a variable wins.
    environment = {**variables(engine, outcome.moe_folder), **words.environment}
    return Plan(
        host=hosts[rank],
        group=group,
        verdict="ok",
        rig=candidate.rig,
        service=candidate.service,
        build=decision.build,
        checkpoint=None if rank and engine == "llama.cpp" else decision.checkpoint,
        draft=decision.draft,
        parallel=candidate.parallel,
        context=candidate.context,
        kv_cache_type=candidate.kv_cache_type,
        kv_tokens=candidate.kv_tokens,
        memory=candidate.memory_of(rank),
        runtime_mib=mib(candidate.runtime_bytes) if candidate.usage else 0,
        host_memory_mib=candidate.host_memory_of(rank),
        host_parts=candidate.host_parts,
        decode_tokens_per_second=decision.decode_tokens_per_second,
        decode_at_concurrency=decision.decode_at_concurrency,
        command=words.words,
        environment=dict(sorted(environment.items())),
        served_name=words.served_name,
        start_timeout_s=words.start_timeout_s,
        moe_config=decision.moe_config,
        moe_folder=outcome.moe_folder,
        driver=decision.driver,
        driver_floor=decision.driver_floor,
        nodes=tuple(Node(host=host) for host in hosts) if several else (),
        rank=rank,
        peer_ports=peer_ports(engine, candidate.service, candidate.hosts) if several else (),
        peer_traffic=several and engine != "llama.cpp",
        warnings=decision.warnings,
        silenced=decision.silenced,
        alternatives=decision.alternatives,
        figures=decision.figures,
        quality=decision.quality,
        traded=decision.traded,
        speculative=decision.speculative,
    )
