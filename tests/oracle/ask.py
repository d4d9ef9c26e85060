"""Asks an engine about every plan of the matrix, and keeps what it says.

    python -m tests.oracle.ask ENVIRONMENT [--engine vllm] [--release 0.33.0] [--minutes 60] [--jobs 2]
                               [--only WORDS] [--stale]

ENVIRONMENT: a folder that has the engine's CUDA wheel, as `rigup` installs it. It asks what was never asked or whose
plan changed since, and ends after so many minutes; the next run goes on. The answers are in answers/, a line each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Any

from rigup.catalogue.kernels import KernelKey
from rigup.facts.engine_kernels import WORDS, read_kernels
from rigup.facts.judgement import settled_lines
from rigup.service import EngineName
from tests.code_digest import code_of
from tests.oracle.matrix import Pair, pairs

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ANSWERS = HERE / "answers"
JUDGE = ROOT / "src/rigup/programs/judge"
# Pairs that one process answers: it takes half a minute to load, and a case of SGLang half a second.
GROUP: dict[EngineName, int] = {"vllm": 8, "sglang": 100}
RELEASES: dict[EngineName, tuple[str, ...]] = {"vllm": ("0.33.0", "0.29.0", "0.25.1"), "sglang": ("0.5.23",)}
"""Of each engine, newest first."""


def judge_digest(engine: str) -> str:
    """Of what the programs that ask do."""
    code = b"".join(code_of((JUDGE / name).read_bytes()) for name in ("simulated_gpus.py", "cases.py", f"{engine}.py"))
    return hashlib.sha256(code).hexdigest()[:16]


def answers_of(engine: EngineName, release: str) -> Path:
    """The file with what a release answered."""
    return ANSWERS / f"{engine}-{release}.jsonl"


def read_answers(path: Path) -> dict[str, dict[str, Any]]:
    """By the pair's name."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["id"]: row for row in map(json.loads, lines)}


def write_answers(path: Path, answers: dict[str, dict[str, Any]]) -> None:
    """A line each, in the order of their names."""
    path.parent.mkdir(exist_ok=True)
    rows = [json.dumps(answers[name], sort_keys=True) for name in sorted(answers)]
    path.write_text("".join(f"{row}\n" for row in rows))


def groups(wanted: Iterable[Pair], size: int) -> list[list[Pair]]:
    """Those that one process can answer: of the same cards and environment."""
    by_process = defaultdict(list)
    for pair in wanted:
        asked = pair.question
        by_process[json.dumps([asked["gpu"], asked["gpus"], asked["environment"]])].append(pair)
    return [same[at : at + size] for same in by_process.values() for at in range(0, len(same), size)]


def in_order(wanted: list[Pair], seen: Counter[KernelKey]) -> list[Pair]:
    """First one of each kind of question that was not asked, then the second, ... seen: how many were, by kind."""
    random.Random(len(wanted)).shuffle(wanted)
    ranks = {}
    for pair in wanted:
        ranks[pair.name] = seen[pair.key]
        seen[pair.key] += 1
    return sorted(wanted, key=lambda pair: ranks[pair.name])


def without_paths(line: str, environment: Path) -> str:
    """An answer without the paths of the machine that gave it."""
    line = line.replace(str(environment), "ENVIRONMENT").replace(str(Path.home()), "~")
    return re.sub(r"/tmp/judge-\w+", "CHECKPOINT", line)


def ask(
    environment: Path, engine: EngineName, group: list[Pair], rooms: Mapping[str, int] | None = None
) -> Iterator[tuple[Pair, dict[str, Any]]]:
    """Each pair with its answer, from one process. environment: a folder that has the engine's CUDA wheel.

    rooms: MiB that the cache of a pair has, by its name, where not those of its plan.
    """
    judge = judge_digest(engine)
    given = {pair.name: (rooms or {}).get(pair.name, pair.question["cache_mib"]) for pair in group}
    cases = [{**pair.case(), "cache_mib": given[pair.name], "words": WORDS} for pair in group]
    with subprocess.Popen(
        [environment / "bin/python", "-m", f"rigup.programs.judge.{engine}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1"},
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write("".join(json.dumps(case) + "\n" for case in cases))
        process.stdin.close()
        try:
            for pair, line in zip(group, process.stdout, strict=False):
                row = json.loads(without_paths(line, environment))
                assert row["id"] == pair.name, row
                row["kernels"] = asdict(read_kernels([*row.pop("log", ()), *settled_lines(row.get("settled", {}))]))
                yield pair, {**row, "asked": pair.digest, "cache_mib": given[pair.name], "judge": judge}
        finally:
            process.kill()


def main() -> int:
    """Asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--engine", default="vllm", choices=list(RELEASES))
    parser.add_argument("--release", default="", help="that ENVIRONMENT has; the newest of RELEASES without it")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="pairs whose name contains this")
    parser.add_argument("--again", action="store_true", help="also those that were answered")
    parser.add_argument("--stale", action="store_true", help="only those that were answered and whose plan changed")
    args = parser.parse_args()
    release = args.release or RELEASES[args.engine][0]
    path, judge = answers_of(args.engine, release), judge_digest(args.engine)
    answers, until, writing = read_answers(path), time.monotonic() + 60 * args.minutes, Lock()
    every = {pair.name: pair for pair in pairs(args.engine, release)}
    answers = {name: row for name, row in answers.items() if name in every}
    wanted = [
        pair
        for name, pair in every.items()
        if args.only in name
        and (not args.stale or name in answers)
        and (args.again or answers.get(name, {}).get("asked") != pair.digest or answers[name]["judge"] != judge)
    ]
    print(f"{len(every)} pairs, {len(wanted)} to ask", flush=True)
    wanted = in_order(wanted, Counter(every[name].key for name in answers))

    def work(group: list[Pair]) -> None:
        if time.monotonic() > until:
            return
        for pair, row in ask(args.environment, args.engine, group):
            with writing:
                answers[pair.name] = row
                write_answers(path, answers)
            stopped = row.get("stopped", {}).get("message", "").splitlines()[:1]
            print(
                f"{row.get('seconds', 0):5.0f} s {row['reached']:14} {pair.name} {' '.join(stopped)[:150]}", flush=True
            )
            if time.monotonic() > until:
                return

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(work, groups(wanted, GROUP[args.engine])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
