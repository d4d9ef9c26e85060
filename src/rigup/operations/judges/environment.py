"""Asks vLLM and SGLang: the judge is a Python program, which runs in the build's own environment (docs/judges.md)."""

from __future__ import annotations

import json
from typing import Any

from rigup import layout
from rigup.facts.engine_kernels import WORDS
from rigup.facts.judgement import USAGE, Judgement, parse
from rigup.facts.probe import ProbedGpu
from rigup.host import Host
from rigup.operations.judges.question import Question, moved
from rigup.operations.primitives import remote
from rigup.operations.service.gpu_binding import VISIBLE
from rigup.operations.weights.checkpoint import fetch_small_files
from rigup.plan import Plan
from rigup.programs import judge
from rigup.systemd.service import compiler_environment

SEES_CARDS = True
"""To ask the driver how many multiprocessors one has."""
_ARCHIVE = f"{layout.PROGRAMS}/judge.zip"
_RUN = 'exec "$0" -m "$1" < "$2" > "$3"'
# Where the engine would keep what it compiles: the job's own /tmp.
_KEPT = ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def prepare(host: Host, question: Question) -> tuple[str, ...]:
    """Puts the judge and the case on the host, and returns the command that answers. Raises HostFailed."""
    plan = question.plan
    assert plan.build is not None
    folders = question.folders(host, fetch_small_files)
    case = case_of(plan, list(question.cards), min(question.free_mib, default=None))
    case |= {"folder": next(iter(folders.values())), "arguments": moved(case["arguments"], folders)}
    remote.write_file(host, _ARCHIVE, judge.archive())
    remote.write_file(host, question.file, json.dumps(case) + "\n", "640", layout.WORKER_USER)
    own = [f"{name}=/tmp/{name.lower()}" for name in _KEPT]
    own += [f"{name}={value}" for name, value in compiler_environment(plan.build, question.build).items()]
    python, program = f"{question.build}/bin/python", f"rigup.programs.judge.{plan.build.engine}"
    words = ("sh", "-c", _RUN, python, program, question.file, question.answer)
    return ("env", *own, "CUDA_DEVICE_ORDER=PCI_BUS_ID", f"PYTHONPATH={_ARCHIVE}", *words)


def read(text: str, question: Question) -> Judgement:
    """What the judge printed. Raises Unreadable."""
    assert question.plan.build is not None
    return parse(text, question.plan.build.engine)


def case_of(plan: Plan, cards: list[ProbedGpu], free_mib: int | None) -> dict[str, Any]:
    """The case of a judge on a host, but for its folder. cards: of the plan. free_mib: as for `ask`. Pure."""
    given = next(place for place, word in enumerate(plan.command) if word.startswith(f"{layout.WEIGHTS}/"))
    least = min(cards, key=lambda card: card.memory_total_mib or 0)
    memory = (least.memory_total_mib or 0) - (least.memory_reserved_mib or 0)
    return {
        "id": plan.service.name,
        "gpu": {
            "index": cards[0].index,
            "name": cards[0].name,
            "capability": [int(part) for part in cards[0].compute_capability.split(".")],
            "memory_mib": memory,
            "free_mib": memory if free_mib is None else min(memory, free_mib),
            "nvlink": bool(cards[0].nvlinks),
            "unified": cards[0].memory_of_host,
        },
        "gpus": len(cards),
        "environment": {name: value for name, value in plan.environment.items() if name not in (VISIBLE, *_KEPT)},
        "arguments": list(plan.command[given + 1 :]),
        **_room(plan, least.memory_reserved_mib or 0),
        "words": f"{WORDS}|{USAGE}",
    }


def _room(plan: Plan, reserved_mib: int) -> dict[str, int]:
    """What the plan has for the cache, or what it counts beside cache and weights, for a judge that weighs these."""
    assert plan.build is not None
    if plan.build.engine in judge.WEIGHING:
        return {"beside_mib": max(row.overhead_mib for row in plan.memory) - reserved_mib}
    return {"cache_mib": max(row.kv_cache_mib for row in plan.memory)}
