"""Published speeds, what the planner says of them, and the fit of its figures.

    python -m tests.measured.paces      with SciPy at hand: fits, and writes src/rigup/catalogue/data/paces/

speeds.json has a run in each row: what its step read and computed by rigup's own counting of the model and format, the
speed, and where it was published. A third of the threads, by their hash, is kept back: no figure was fitted to them.
reports.json has the figures of all public reports that were collected, in the words of their sources: also of memory
when engines start, of prompts, of drafting and of experts in host memory, which nothing is fitted to yet.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rigup.catalogue.data_files import DATA
from rigup.catalogue.paces import Pace, paces
from rigup.planner.moe_config import lacks_tuned_kernel
from rigup.planner.speed import DecodeStep, Stage, gpu_seconds, step_of
from rigup.service import EngineName
from rigup.units import MIB
from tests.unit.planner.asking import served
from tests.unit.planner.measured import SPEED

ROWS = Path(__file__).with_name("speeds.json")
LLAMA_CPP: tuple[EngineName, ...] = ("llama.cpp",)
TENSOR_ENGINES: tuple[EngineName, ...] = ("vllm", "sglang")
SPREAD, TOGETHER = math.sqrt(2.5), 2.0
"""Of ranges that are a factor of 2.5 wide for one request, and of 4 for several at once."""


@dataclass(frozen=True)
class Run:
    """One published run. prompts: tokens of prompts that were computed in the time of one output token."""

    name: str
    engine: EngineName
    what: str
    tokens_per_second: float
    thread: str
    url: str
    step: DecodeStep
    prompts: float

    @property
    def kept_back(self) -> bool:
        """Whether nothing was fitted to it."""
        return int(hashlib.sha256(self.thread.encode()).hexdigest(), 16) % 3 == 0

    def estimate(self, pace: Pace, prompts: float = 1.0) -> float:
        """Tokens a second of all its requests. prompts: part of a card's rate at which prompts are computed."""
        stage = self.step.stages[0]
        rate = stage.ranks * stage.flops * prompts
        beside = 2.0 * self.step.active * self.step.sequences * self.prompts / rate if rate else 0.0
        return self.step.sequences / (gpu_seconds(pace, self.step) + beside)

    @property
    def is_within(self) -> bool:
        """Whether the speed lies in the range."""
        pace = paces()[self.engine]
        return abs(self.off(pace)) <= math.log(pace.spread_of(self.step.sequences))

    def off(self, pace: Pace, prompts: float = 1.0) -> float:
        """The logarithm of estimated by measured."""
        return math.log(self.estimate(pace, prompts) / self.tokens_per_second)


def _run(row: dict[str, Any]) -> Run:
    step = dict(row["step"])
    sizes = {name: step.pop(f"{name}_mib") * MIB for name in ("dense", "experts", "cache")}
    stages = tuple(Stage(part, ranks, gbs * 1e9, tflops * 1e12) for part, ranks, gbs, tflops in step.pop("stages"))
    return Run(
        row["id"],
        row["engine"],
        row["what"],
        row["tokens_per_second"],
        row["thread"],
        row["url"],
        DecodeStep(**step, **sizes, stages=stages),
        row["prompt_share"],
    )


@cache
def runs() -> tuple[Run, ...]:
    """All of them."""
    return tuple(_run(row) for row in json.loads(ROWS.read_text()))


@cache
def minimax() -> tuple[Run, ...]:
    """Those of MiniMax in tests/unit/planner/measured.py, with every expert on a GPU. All of them were looked at."""
    found = []
    for row in SPEED:
        candidate = served(row.gpus, row.service, row.host_memory_gib, row.host_memory)
        if candidate.offloads_experts or lacks_tuned_kernel(candidate):
            continue
        step = step_of(candidate, candidate.storage, row.concurrency, row.tokens)
        name = candidate.engine.name
        found.append(Run(row.what, name, row.what, row.measured, row.source, row.source, step, 0.0))
    return tuple(found)


def of(engines: Sequence[str], kept_back: bool) -> tuple[Run, ...]:
    """Those of engines that were kept back, or the others."""
    return tuple(run for run in runs() if run.engine in engines and run.kept_back == kept_back)


def within(found: Iterable[Run]) -> float:
    """The part of the runs whose speed lies in the range."""
    hits = [run.is_within for run in found]
    return sum(hits) / len(hits)


def median_off(found: Iterable[Run]) -> float:
    """How far the middle of the range is off, as a part."""
    return statistics.median(abs(math.expm1(run.off(paces()[run.engine]))) for run in found)


def summary() -> list[str]:
    """Lines of the table in docs/speed.md: how far the middles of the ranges are off."""
    lines = []
    for title, engines in (("llama.cpp", LLAMA_CPP), ("vLLM and SGLang", TENSOR_ENGINES)):
        for what, kept_back in (("fitted", False), ("kept back", True)):
            for how, alone in (("one request", True), ("several at once", False)):
                found = [run for run in of(engines, kept_back) if (run.step.sequences == 1) == alone]
                if found:
                    worst = max(max(math.exp(abs(run.off(paces()[run.engine]))) for run in found), 1.0)
                    figures = f"{len(found)} | {within(found):.0%} | {median_off(found):.0%} | {worst:.1f}"
                    lines.append(f"| {title}, {how} | {what} | {figures.replace('%', ' %')} |")
    return lines


_FIRST = {"compute": 0.6, "alike": 0.9, "sequence": 50.0, "boundary": 100.0}
_OF_CARDS = {
    "weights": 0.75,
    "experts": 0.65,
    "older_experts": 0.5,
    "cache": 0.6,
    "layer": 30.0,
    "expert_layer": 30.0,
    "latent_layer": 5.0,
    "linear_layer": 5.0,
    "reduce": 10.0,
    "link_gbs": 20.0,
}
_MEMORIES = ("hbm", "gddr")
_SAME = {f"hbm.{name}": f"gddr.{name}" for name in ("weights", "experts", "cache")} | {
    f"{memory}.older_experts": "gddr.experts" for memory in _MEMORIES
}
_PARTS = frozenset(("weights", "experts", "older_experts", "cache", "compute", "alike", "prompts"))
MOST, DOUBT = 0.98, 0.05


def _pace(engines: Sequence[EngineName], values: dict[str, float], number: int) -> Pace:
    cards = {memory: {name: values[f"{memory}.{name}"] for name in _OF_CARDS} for memory in _MEMORIES}
    told = {name: values[name] for name in _FIRST}
    widths = {"spread": SPREAD, "together": TOGETHER}
    source = "tests/measured/speeds.json, with the address of each run"
    return Pace.model_validate({"engines": engines, **told, **cards, **widths, "runs": number, "source": source})


def fit(engines: Sequence[EngineName]) -> Pace:
    """The figures of engines that are least off, by robust least squares of logarithms.

    vLLM and SGLang read at one pace from both kinds of memory and on cards of any age: there are too few runs for more.
    """
    from scipy.optimize import least_squares  # type: ignore[import-untyped,import-not-found,unused-ignore]

    found = (*of(engines, kept_back=False), *(run for run in minimax() if run.engine in engines))
    first = {**_FIRST, **{f"{memory}.{name}": value for memory in _MEMORIES for name, value in _OF_CARDS.items()}}
    first |= {"hbm.link_gbs": 300.0, "prompts": 0.5}
    same = {} if "llama.cpp" in engines else _SAME
    names = list(first)
    parts = [name.rpartition(".")[2] in _PARTS for name in names]
    lowest = [0.05 if part else 1.0 if "link" in name else 0.0 for name, part in zip(names, parts, strict=True)]
    highest = [MOST if part else 500.0 for part in parts]

    def errors(values: Sequence[float]) -> list[float]:
        told = dict(zip(names, values, strict=True))
        told |= {name: told[other] for name, other in same.items()}
        pace = _pace(engines, told, len(found))
        # A figure that no run tells of stays what it was.
        doubts = [DOUBT * (value / first[name] - 1) for name, value in told.items()]
        return [*(run.off(pace, told["prompts"]) for run in found), *doubts]

    best = least_squares(errors, [first[n] for n in names], bounds=(lowest, highest), loss="soft_l1", f_scale=0.15)
    told = dict(zip(names, map(float, best.x), strict=True))
    return _pace(engines, {**told, **{name: told[other] for name, other in same.items()}}, len(found))


def toml(pace: Pace) -> str:
    """The file of some engines."""
    lines = ["# Written by python -m tests.measured.paces, which fits it to published runs: docs/speed.md.", ""]
    lines += [f"engines = {json.dumps(list(pace.engines))}"]
    lines += [f"{name} = {round(getattr(pace, name), 3)}" for name in (*_FIRST, "spread", "together")]
    lines += [f"runs = {pace.runs}", f"source = {json.dumps(pace.source)}"]
    for memory in _MEMORIES:
        cards = getattr(pace, memory)
        lines += ["", f"[{memory}]", *(f"{name} = {round(getattr(cards, name), 3)}" for name in _OF_CARDS)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fits and writes."""
    for name, engines in (("llama_cpp", LLAMA_CPP), ("tensor_engines", TENSOR_ENGINES)):
        (DATA / "paces" / f"{name}.toml").write_text(toml(fit(engines)))


if __name__ == "__main__":
    main()
