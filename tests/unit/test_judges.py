"""Plans against what the engines' own code said of them (docs/judges.md)."""

from __future__ import annotations

from typing import Any

from rigup.service import EngineName
from tests.oracle.ask import ANSWERS, RELEASES, read_answers
from tests.oracle.differences import REFUSED, TOKENS
from tests.oracle.matrix import Pair, pairs

MOST_OFF = 0.005
"""By how much the tokens of a cache may differ from the engine's."""
ENOUGH, LITTLE = 50, "plans have changed: ask again (docs/judges.md)"
NOTHING = "no engine says this"
COMPLETE = {"vllm": ("graphs", "ready"), "sglang": ("configuration",)}


def answered(engine: EngineName) -> list[tuple[Pair, dict[str, Any]]]:
    """The pairs whose plan is still the one that was asked about, with the answers."""
    answers = read_answers(ANSWERS / f"{engine}-{RELEASES[engine]}.jsonl")
    every = ((pair, answers.get(pair.name)) for pair in pairs(engine, answers))
    return [(pair, row) for pair, row in every if row is not None and row["asked"] == pair.digest]


def refused(found: list[tuple[Pair, dict[str, Any]]], engine: EngineName) -> set[str]:
    """Plans whose engine's code ends, for another reason than what is missing in a stored configuration."""
    ended = [(pair, row["stopped"]["message"]) for pair, row in found if row["reached"] not in COMPLETE[engine]]
    known = REFUSED[engine]
    return {pair.name for pair, said in ended if known.get(pair.checkpoint.repo, NOTHING) not in said}


def off_by(found: list[tuple[Pair, dict[str, Any]]]) -> dict[str, float]:
    """By what part a plan's tokens are more than the engine's, of as many bytes."""
    off = dict[str, float]()
    for pair, row in found:
        if "cache" in row:
            said = row["cache"]["requests"] * row["settled"]["context"] / row["cache_mib"]
            off[pair.name] = (pair.plan.kv_tokens or 0) / pair.question["cache_mib"] / said - 1
    return off


def test_sglang_takes_every_plan() -> None:
    found = answered("sglang")
    assert len(found) >= ENOUGH, LITTLE
    assert refused(found, "sglang") == set()


def test_vllm_takes_every_plan_and_holds_as_many_tokens() -> None:
    found = answered("vllm")
    assert len(found) >= ENOUGH, LITTLE
    assert refused(found, "vllm") == set()
    off = off_by(found)
    assert {name: f"{by:+.2%}" for name, by in off.items() if abs(by) > MOST_OFF and name not in TOKENS} == {}
    assert len([name for name in off if name in TOKENS]) <= 0.05 * len(off)
