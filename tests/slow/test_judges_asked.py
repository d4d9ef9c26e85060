"""vLLM's own code is asked again about a few plans, drawn by the commit: it says what the kept answers say."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.ask import RELEASES, answers_of, ask, groups, read_answers
from tests.oracle.environment import judge_environment
from tests.oracle.matrix import pairs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.rests_on("the planner", "the data", "src/rigup/programs/judge", "tests/oracle"),
]
MOST = 6
SECONDS = 60
"""More than this a pair took when it was asked: such pairs are not drawn."""
SAME = ("reached", "stages", "cache", "settled", "kernels")


def commit() -> str:
    """The one that is checked out; "" where there is none."""
    words = ["git", "rev-parse", "HEAD"]
    return subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()


def test_a_few_plans_get_the_same_answers_again() -> None:
    release = RELEASES["vllm"][0]
    kept = read_answers(answers_of("vllm", release))
    quick = sorted(name for name, row in kept.items() if row["seconds"] < SECONDS)
    drawn = random.Random(commit()).sample(quick, MOST)
    environment = judge_environment("vllm", release)
    rooms = {name: kept[name]["cache_mib"] for name in drawn}
    again = dict[str, dict[str, Any]]()
    for group in groups(pairs("vllm", release, drawn), MOST):
        again |= {pair.name: json.loads(json.dumps(row)) for pair, row in ask(environment, "vllm", group, rooms)}
    assert sorted(again) == sorted(drawn)
    differ = {
        name: {key: (kept[name].get(key), row.get(key)) for key in SAME if kept[name].get(key) != row.get(key)}
        for name, row in again.items()
    }
    assert {name: parts for name, parts in differ.items() if parts} == {}
