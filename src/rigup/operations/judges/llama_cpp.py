"""Asks llama.cpp: the judge was compiled with the build, and reads the beginnings of GGUF files (docs/judges.md)."""

from __future__ import annotations

from rigup import layout
from rigup.errors import HostFailed
from rigup.facts.judgement import Judgement, parse_sizes
from rigup.host import Host
from rigup.operations.judges.question import Question, moved
from rigup.operations.primitives import remote
from rigup.operations.weights.checkpoint import fetch_heads
from rigup.programs.build_source import JUDGE
from rigup.programs.judge.llama_cpp import cards_text

SEES_CARDS = False
_RUN = 'answer="$1"; shift; "$@" > "$answer" 2>&1; echo "exit $?" >> "$answer"'
# What llama-server has of systemd alone.
_NOT_THERE = ("--api-key-file",)
_READ = ("LLAMA_ARG_", "GGML_")
"""How variables begin that the engine reads."""


def prepare(host: Host, question: Question) -> tuple[str, ...]:
    """Has the beginnings of the files on the host, and returns the command that answers. Raises HostFailed."""
    plan, program = question.plan, f"{question.build}/bin/{JUDGE}"
    if not remote.run(host, "test", "-x", program).ok:
        raise HostFailed("its build has no judge: one that rigup compiles from now on has")
    folders = question.folders(host, fetch_heads)
    memory = [(card.memory_total_mib or 0) - (card.memory_reserved_mib or 0) for card in question.cards]
    rows = [
        (mib, free, card.compute_capability, card.memory_of_host, card.name)
        for card, mib, free in zip(question.cards, memory, question.free_mib or memory, strict=True)
    ]
    remote.write_file(host, question.file, cards_text(rows), "640", layout.WORKER_USER)
    read = [f"{name}={value}" for name, value in plan.environment.items() if name.startswith(_READ)]
    words = ("sh", "-c", _RUN, "sh", question.answer, program, "sizes", *arguments(plan.command[1:], folders))
    return ("env", *read, f"RIGUP_CARDS={question.file}", *words)


def arguments(words: tuple[str, ...], folders: dict[str, str]) -> list[str]:
    """Those of a server, with its files where they are now. folders: where the files of each weights folder are."""
    left_out = {place for place, word in enumerate(words) if word in _NOT_THERE}
    kept = [word for place, word in enumerate(words) if not {place, place - 1} & left_out]
    return moved(kept, folders)


def read(text: str, question: Question) -> Judgement:
    """What the judge printed. Raises Unreadable."""
    beside = [max(0, question.plan.runtime_mib - (card.memory_reserved_mib or 0)) for card in question.cards]
    return parse_sizes(text, [card.index for card in question.cards], question.free_mib, beside)
