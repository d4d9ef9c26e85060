"""Plans against what the engines' own code said of them (docs/judges.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.kernels import kernel_table
from rigup.facts.judgement import parse
from rigup.service import EngineName
from rigup.units import MIB
from tests.oracle.ask import ANSWERS, RELEASES, answers_of, judge_digest, read_answers, without_paths
from tests.oracle.differences import NO_ANSWER, REFUSED, TOKENS, WEIGHTS
from tests.oracle.matrix import Pair, pairs

MOST_OFF = 0.005
"""By how much the tokens of a cache may differ from the engine's."""
MOST_OFF_WEIGHTS = 0.01
"""The same of the weights on the fullest rank."""
ENOUGH, ENOUGH_OF_OLDER = 50, 20
LITTLE = "too few plans were asked about (docs/judges.md)"
STALE = "these plans, or the judge, have changed: python -m tests.oracle.ask ENVIRONMENT --stale (docs/judges.md)"
FEW = 0.05
"""The part of the plans that may differ, for a reason that is listed."""
NOTHING = "no engine says this"
TYPES = {"bf16": ("bfloat16", "float16"), "fp8": ("float8_e4m3fn",)}
"""Of torch, by the plan's name of a KV cache type; some stored configurations do not say which of 16 bits."""
COMPLETE = {"vllm": ("graphs", "ready"), "sglang": ("cache",)}


def answered(engine: EngineName, release: str) -> list[tuple[Pair, dict[str, Any]]]:
    """The pairs that were asked about, with the answers: each to today's plan, by today's judge."""
    answers, judge = read_answers(answers_of(engine, release)), judge_digest(engine)
    found = [(pair, answers[pair.name]) for pair in pairs(engine, release, answers)]
    current = {pair.name for pair, row in found if (row["asked"], row["judge"]) == (pair.digest, judge)}
    assert sorted(answers.keys() - current) == [], STALE
    return found


def refuses_attention(pair: Pair) -> bool:
    """Whether rigup refuses the plan where nobody allows it."""
    table = kernel_table(pair.build.engine, pair.build.version)
    return table is not None and pair.capability in table.unable.get(pair.kind, {})


def refused(found: list[tuple[Pair, dict[str, Any]]], engine: EngineName) -> set[str]:
    """Plans whose engine's code ends, for another reason than what is missing in a stored configuration.

    What has no attention is in the table of its release, by which the rule attention-kernels refuses such plans.
    """
    ended = [(pair, row["stopped"]["message"]) for pair, row in found if row["reached"] not in COMPLETE[engine]]
    known = REFUSED[engine]
    return {
        pair.name
        for pair, said in ended
        if not refuses_attention(pair)
        and not said.startswith(NO_ANSWER)
        and known.get(pair.checkpoint.repo, NOTHING) not in said
    }


@pytest.mark.parametrize(("engine", "release"), [(engine, one) for engine, found in RELEASES.items() for one in found])
def test_what_only_the_judge_cannot_do_refuses_no_plan_on_a_host(engine: EngineName, release: str) -> None:
    rows = read_answers(answers_of(engine, release)).values()
    ended = [row for row in rows if row.get("stopped", {}).get("message", "").startswith(NO_ANSWER)]
    assert [parse(json.dumps(row), engine).refusal for row in ended] == [""] * len(ended)


def off_by(found: list[tuple[Pair, dict[str, Any]]]) -> dict[str, float]:
    """By what part a plan's tokens are more than the engine's, of as many bytes.

    The judge gives every stage of a pipeline as much: the one with the most cache in the plan decides. SGLang says
    what one of the replicas holds.
    """
    off = dict[str, float]()
    for pair, row in found:
        if "cache" in row:
            tokens = row["cache"]["tokens"] * pair.plan.parallel.data
            if pair.build.engine == "vllm":  # which prints tokens of hybrid models by another formula
                tokens = row["cache"]["requests"] * row["settled"]["context"]
            planned = (pair.plan.kv_tokens or 0) / max(one.kv_cache_mib for one in pair.plan.memory)
            off[pair.name] = planned / (tokens / row["cache_mib"]) - 1
    return off


def off_by_weights(found: list[tuple[Pair, dict[str, Any]]]) -> dict[str, float]:
    """By what part the weights of the fullest rank are more than the engine's; of plans with all of them on GPUs.

    Not of models with a vision tower whose shapes nobody has stored: that of the judge is made up. Nor of those whose
    experts SGLang repacks by kernels that it would compile: it keeps what is freed then.
    """
    off = dict[str, float]()
    for pair, row in found:
        unknown = pair.checkpoint.model == "MiniMax-M3" or (
            pair.build.engine == "sglang" and any("MoEMethod" in name for name in row.get("not_repacked", ()))
        )
        if row.get("stages") and "--cpu-offload-gb" not in pair.plan.command and not unknown:
            said = max(stage["weights_bytes"] for stage in row["stages"]) / MIB
            off[pair.name] = max(one.weights_mib for one in pair.plan.memory) / said - 1
    return off


@pytest.mark.parametrize(("engine", "release"), [(engine, one) for engine, found in RELEASES.items() for one in found])
def test_an_engine_takes_every_plan_with_as_many_tokens_and_bytes(engine: EngineName, release: str) -> None:
    found = answered(engine, release)
    assert len(found) >= (ENOUGH if release == RELEASES[engine][0] else ENOUGH_OF_OLDER), LITTLE
    assert refused(found, engine) == set()
    for off, most, known in (
        (off_by(found), MOST_OFF, TOKENS.get(release, {})),
        (off_by_weights(found), MOST_OFF_WEIGHTS, WEIGHTS.get(release, {})),
    ):
        differ = {name: f"{by:+.2%}" for name, by in off.items() if abs(by) > most}
        assert {name: by for name, by in differ.items() if not name.startswith(tuple(known))} == {}
        assert len(differ) <= FEW * len(off)


@pytest.mark.parametrize("release", RELEASES["sglang"])
def test_sglang_keeps_caches_of_the_planned_type(release: str) -> None:
    other = {
        pair.name: row["cache"]["type"]
        for pair, row in answered("sglang", release)
        if "cache" in row and row["cache"]["type"] not in TYPES[str(pair.plan.kv_cache_type)]
    }
    assert other == {}


def test_answers_have_no_path_of_a_machine(tmp_path: Path) -> None:
    said = f"ImportError: {tmp_path}/lib/x.so; {Path.home()}/.cache/y; /tmp/judge-a_1/config.json"
    assert without_paths(said, tmp_path) == "ImportError: ENVIRONMENT/lib/x.so; ~/.cache/y; CHECKPOINT/config.json"
    assert [path.name for path in ANSWERS.iterdir() if re.search("/(root|home|tmp|work)/", path.read_text())] == []
