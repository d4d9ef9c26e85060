"""Turns a decision into plans: the engine's words for every host of a service, then the plan of each host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rigup.catalogue.option_names import is_own_variable
from rigup.commands.command import Command, command
from rigup.commands.moe_configs import VARIABLES, moe_folder
from rigup.commands.numa import numa_binding
from rigup.node import Node
from rigup.plan import Finding, MoeFolder, Plan
from rigup.planner.candidate import Candidate, mib
from rigup.planner.decision import Decision, Refusal
from rigup.planner.kernels import planned_kernels
from rigup.planner.multinode.ports import peer_ports
from rigup.planner.rules.options import PACKAGE
from rigup.planner.rules.rule import engine_name

_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_OF_PYTHON = ("-m",)


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
    if unknown := dict.fromkeys(name for each in commands for name in _unknown_names(candidate, each)):
        return Refusal(candidate.rig, candidate.service, tuple(unknown))
    return Rendered(decision, commands, moe_folder(candidate, decision.build))


def _unknown_names(candidate: Candidate, made: Command) -> tuple[Finding, ...]:
    """A finding for each name that the build does not know, unless the service allows it."""
    words = {word.partition("=")[0] for word in made.words[1:] if _OPTION.match(word)}
    options = {word.partition(".")[0].replace("_", "-") for word in words if word not in _OF_PYTHON}
    variables = {name for name in made.environment if is_own_variable(candidate.engine.name, name)}
    found = [("unknown-option", "option", name) for name in sorted(options - candidate.known_options)]
    found += [("unknown-variable", "variable", name) for name in sorted(variables - candidate.known_variables)]
    return tuple(
        Finding(
            rule=rule,
            message=f"{engine_name(candidate)} does not have the {what} {name} that the plan uses",
            hint="use a version that rigup has been tested with",
            source=PACKAGE,
        )
        for rule, what, name in found
        if rule not in candidate.service.allow
    )


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
    tuned = {VARIABLES[engine]: outcome.moe_folder.path} if outcome.moe_folder else {}
    decided = {name: value for name, value in decision._asdict().items() if name != "candidate"}
    if rank and engine == "llama.cpp":
        decided["checkpoint"] = None
    return Plan(
        host=hosts[rank],
        group=group,
        verdict="ok",
        rig=candidate.rig,
        service=candidate.service,
        parallel=candidate.parallel,
        context=candidate.context,
        kv_cache_type=candidate.kv_cache_type,
        kv_tokens=candidate.kv_tokens,
        memory=candidate.memory_of(rank),
        runtime_mib=mib(candidate.runtime.total) if candidate.usage else 0,
        host_memory_mib=candidate.host_memory_of(rank),
        host_parts=candidate.host_parts,
        command=words.words,
        # The user's value of a variable wins.
        environment=dict(sorted({**tuned, **words.environment}.items())),
        served_name=words.served_name,
        start_timeout_s=words.start_timeout_s,
        moe_folder=outcome.moe_folder,
        numa=numa_binding(candidate),
        kernels=dict(planned_kernels(candidate)),
        nodes=tuple(Node(host=host) for host in hosts) if several else (),
        rank=rank,
        peer_ports=peer_ports(engine, candidate.service, candidate.hosts) if several else (),
        peer_traffic=several and engine != "llama.cpp",
        **decided,
    )
