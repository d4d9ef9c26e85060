"""Plans against what the engines' own code said of them (docs/judges.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from rigup.service import EngineName
from tests.oracle.ask import ANSWERS, RELEASES, read_answers
from tests.oracle.differences import REFUSED, TOKENS
from tests.oracle.matrix import Pair, pairs

MOST_OFF = 0.005
"""By how much the tokens of a cache may differ from the engine's."""
COMPLETE = {"vllm": ("graphs", "ready"), "sglang": ("configuration",)}


@cache
def answered(engine: EngineName) -> list[tuple[Pair, dict[str, Any]]]:
    """The pairs whose plan is still the one that was asked about, with the answers."""
    answers = read_answers(ANSWERS / f"{engine}-{RELEASES[engine]}.jsonl")
    every = ((pair, answers.get(pair.name)) for pair in pairs(engine))
    return [(pair, row) for pair, row in every if row is not None and row["asked"] == pair.digest]


def refused(engine: EngineName) -> Iterator[str]:
    for pair, row in answered(engine):
        if row["reached"] not in COMPLETE[engine]:
            yield pair.name


@pytest.mark.parametrize("engine", RELEASES)
def test_no_plan_is_accepted_that_its_engine_refuses(engine: EngineName) -> None:
    found = answered(engine)
    print(f"{engine}: {len(found)} plans")
    enough = len(found) >= 40
    assert enough
    assert {name for name in refused(engine) if not name.startswith(tuple(REFUSED))} == set()


def test_the_cache_holds_as_many_tokens_as_vllm_says() -> None:
    """Rigup's plan gives the bytes."""
    off = {}
    for pair, row in answered("vllm"):
        if "cache" in row:
            said = row["cache"]["requests"] * row["settled"]["context"]
            off[pair.name] = (pair.plan.kv_tokens or 0) / said - 1
    enough = len(off) >= 40
    assert enough
    wrong = {
        name: f"{by:+.2%}" for name, by in off.items() if abs(by) > MOST_OFF and not name.startswith(tuple(TOKENS))
    }
    assert wrong == {}
    assert len([name for name in off if name.startswith(tuple(TOKENS))]) <= 0.05 * len(off)
