"""What takes turns on the cards of a host: models of llama.cpp alone, with options that its router can pass on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rigup.plain_values import quoted
from rigup.planner.candidate import Candidate
from rigup.planner.rules.rule import Complaint, engine_name, refuses

_DECISION = "docs/decisions/0015-llama-servers-router-swaps-models.md"
# The router's file ends a value at these characters (llama.cpp b11434 common/preset.cpp).
_ENDS = r"[;#\n\r]"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*"


@refuses("swap-engine", _DECISION)
def swap_engine(candidate: Candidate) -> Iterator[Complaint]:
    """Services that take turns run on llama.cpp, whose server loads and ends models on demand."""
    if candidate.service.swap and candidate.engine.name != "llama.cpp":
        yield (
            f"{engine_name(candidate)} does not take turns: only llama.cpp's server unloads a model to load another",
            'set engine to "llama.cpp", or leave swap out and give each service its own GPUs',
        )


@refuses("swap-build", _DECISION)
def swap_build(candidate: Candidate) -> Iterator[Complaint]:
    """Services that take turns need an installed engine, not an image."""
    if candidate.service.swap and candidate.build == "image":
        yield (
            "rigup does not plan services that take turns in a container",
            f'leave build out, which means "{candidate.engine.method}"',
        )


@refuses("swap-hosts", _DECISION)
def swap_hosts(candidate: Candidate) -> Iterator[Complaint]:
    """Services that take turns run on one host."""
    if candidate.service.swap and candidate.hosts > 1:
        yield (
            f"a service that spans {candidate.hosts} hosts does not take turns with others",
            "leave swap out, or let each host serve alone: rig.hosts_per_service = 1",
        )


@refuses("swap-option", "llama.cpp b11434 common/preset.cpp: one value a key, which ends at a comment")
def swap_option(candidate: Candidate) -> Iterator[Complaint]:
    """Options of services that take turns have one value, without the characters that end it in the router's file."""
    if not candidate.service.swap:
        return
    for name, value in candidate.service.flags.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        if isinstance(value, list) and len(value) != 1:
            yield f"{name} has {len(value)} values, but llama-server's router passes on one", "give it one value"
        elif found := re.search(_ENDS, text):
            yield (
                f"{name}: llama-server's router cannot pass on a value with {json.dumps(found[0])}",
                "leave that character out, or leave swap out and give the service its own GPUs",
            )
    if (served := candidate.service.served_name) and not re.fullmatch(_NAME, served):
        yield (
            f"served_name: llama-server's router cannot serve {quoted(served)}",
            'set it to letters, digits and "._:/@+-"',
        )
