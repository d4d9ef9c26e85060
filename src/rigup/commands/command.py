"""Turns a decided candidate into the words of a command and its environment, in the same way for every engine."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from rigup.commands.multinode import is_worker_only, multinode_options, multinode_variables, worker_command
from rigup.commands.options import overlaid, start_timeout_s, words
from rigup.commands.speculative import drafting
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate

# The module of each engine, which is imported for candidates of that engine.
ENGINES = {"llama.cpp": "llama_cpp", "sglang": "sglang", "vllm": "vllm"}


class Command(NamedTuple):
    """What a service runs. `words[0]` is relative to the build's folder or in the image; no words if only Ray runs.

    start_timeout_s: seconds that it may take to load.
    """

    words: tuple[str, ...]
    environment: dict[str, str]
    served_name: str
    start_timeout_s: int


def command(candidate: Candidate, checkpoint: Checkpoint, rank: int = 0, draft: Checkpoint | None = None) -> Command:
    """The whole command of a candidate on the host of a rank, overridden by the user's flags and variables.

    checkpoint: the files that the lock pins. draft: those of a model that drafts tokens.
    """
    engine = import_module(f"rigup.commands.{ENGINES[candidate.engine.name]}")
    variables = {**engine.environment(candidate, checkpoint), **multinode_variables(candidate)}
    return Command(
        words=worker_command(candidate)
        if is_worker_only(candidate, rank)
        else _words(engine, candidate, checkpoint, rank, draft),
        environment=dict(sorted({**variables, **candidate.service.environment}.items())),
        served_name=candidate.served_name,
        start_timeout_s=start_timeout_s(candidate, checkpoint),
    )


def _words(
    engine: Any, candidate: Candidate, checkpoint: Checkpoint, rank: int, draft: Checkpoint | None
) -> tuple[str, ...]:
    options = {
        **engine.options(candidate, checkpoint),
        **drafting(candidate, draft),
        **multinode_options(candidate, rank),
    }
    program, *arguments = engine.program(candidate, checkpoint)
    image = candidate.release.image(candidate.rig.variant) if candidate.build == "image" else None
    return (image.program if image else program, *arguments, *words(overlaid(options, candidate.service.flags)))
