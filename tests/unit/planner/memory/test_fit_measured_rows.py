"""The oracle for memory against published rows: caches exact, weights within 1.5 %, tokens within 3 %, or the cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rigup.attention import Attention
from rigup.catalogue.runtimes import runtimes
from rigup.catalogue.versions import Ranged
from rigup.planner.candidate import Candidate
from rigup.planner.memory.llama_cpp_caches import layer_cells
from rigup.planner.memory.loading import draft_of, in_flight_tokens, state_blocks
from rigup.planner.memory.sglang_caches import StatePool, sglang_pool
from rigup.planner.memory.tensor_engines import place_tensor_engine
from rigup.planner.memory.usage import capacities
from rigup.planner.memory.vllm_caches import BlockPool, vllm_pool
from rigup.units import GIB, MIB
from tests.measured.rows import Row, candidate, has_known_card, rows

DOCS = Path(__file__).parents[4] / "docs"
DOCUMENT = (DOCS / "accuracy.md").read_text()
WEIGHTS, TOKENS = 0.015, 0.03
ROWS = {row.name: row for row in rows()}

# What a row says otherwise, and why. Nothing else may be off.
BYTES_EXCEPTIONS = {
    "ik-377-nemotron-ultra": "K in q8_0 and V in q4_0: rigup has one type for both",
    "llama-ik394-dsv3": "b5331 stored V for latent attention, which b11434 does not",
    "rtx6k-glm51-dcp8-mtp1": "decode context parallelism spreads the cache over ranks; rigup does not plan it",
}
"""Bytes of cache a token."""
TOKENS_EXCEPTIONS = {
    "rtx6k-glm51-dcp8-mtp1": "decode context parallelism spreads the cache over ranks; rigup does not plan it",
}
"""Tokens, and requests of the whole context, that the measured bytes of cache hold."""
PLAN_EXCEPTIONS = {
    "rtx6k-glm51-dcp1-mtp1": "a fork with its own kernels for sparse latent attention: 1.5 GiB more beside the cache",
    "rtx6k-glm51-dcp8-mtp1": "the same fork",
    "vdb-900da89b": "as with 256 sequences; the log does not say how many, and one release later it is as with 1,024",
    "llmd-8": "as with 256 sequences; the table does not say how many, and its other models are as with 1,024",
}
"""KV cache and total of a plan from nothing but the card, the fraction and the defaults."""
OTHER_SEQUENCES = {"vdb-900da89b": 256, "llmd-8": 256}
"""Rows that are within the limits if the engine was started for so many requests at once, not for vLLM's 1,024."""
WEIGHTS_EXCEPTIONS = {
    "vdb-d5245609": "an AMD card, whose builds of vLLM hold other copies; rigup plans none",
    "file-sglang-q38-27b": "the difference of free memory: 0.9 GiB more than the tensors, as much as the MTP layer has",
}
"""Weights of one GPU."""


def draft_layers(planned: Candidate) -> tuple[Attention, ...]:
    draft = draft_of(planned)
    return draft.attention(planned.model) if draft else ()


def layers_held(row: Row) -> tuple[int, int]:
    planned = candidate(row)
    drafted = sum(len(entry.layers) for entry in planned.model.mtp_attention) if draft_of(planned) else 0
    return 0, planned.model.layers + drafted


def bytes_per_token(row: Row) -> float:
    """As the row's source counts: all GPUs together of llama.cpp, else one; a hybrid's blocks by the tokens of one."""
    planned = candidate(row)
    if planned.engine.name == "llama.cpp":
        states = (row.measured("recurrent_mib") or 0) * MIB
        return (sum(layer_cells(planned)) - states) / (planned.context * planned.sequences)
    if planned.engine.name == "sglang":
        pool = sglang_pool(planned)  # the log tells of the draft's cache by itself
        if isinstance(pool, StatePool):
            return sum(pool.layers)
        return sum(pool.layer_bytes(1))
    blocks = vllm_pool(
        planned.model, planned.storage, in_flight_tokens(planned), draft_layers(planned), state_blocks(planned)
    )
    if isinstance(blocks, BlockPool):
        if planned.release.at_least("0.21.0"):
            return blocks.needed_bytes(planned.context, *layers_held(row)) / planned.context
        least = min(group.block for group in blocks.groups if group.block)
        return len(blocks.groups) * blocks.block_bytes(*layers_held(row)) / least
    return sum(blocks.layer_bytes(1))


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.data.get("bytes_per_token")])
def test_bytes_of_a_token_are_exact(name: str) -> None:
    row = ROWS[name]
    exact = bytes_per_token(row) == pytest.approx(row.data["bytes_per_token"], rel=1e-6)
    assert exact != (name in BYTES_EXCEPTIONS), bytes_per_token(row)


def has_tokens(row: Row) -> bool:
    return bool(row.kv_gib and row.measured("kv_tokens")) and row.engine != "llama.cpp"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if has_tokens(row)])
def test_tokens_that_the_measured_cache_holds(name: str) -> None:
    row = ROWS[name]
    planned = candidate(row)
    room = (row.kv_gib or 0) * GIB
    pool = vllm_pool(
        planned.model, planned.storage, in_flight_tokens(planned), draft_layers(planned), state_blocks(planned)
    )
    if planned.engine.name == "sglang":
        tokens = room / bytes_per_token(row)
    elif isinstance(pool, BlockPool) and not planned.release.at_least("0.21.0"):
        least = min(group.block for group in pool.groups if group.block)
        tokens = pool.blocks(room, *layers_held(row)) // len(pool.groups) * least
    else:
        tokens = pool.tokens(room, *layers_held(row), planned.context)
    off = tokens / (row.measured("kv_tokens") or 0) - 1
    assert (abs(off) <= TOKENS) != (name in TOKENS_EXCEPTIONS), f"{off:+.2%}"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.measured("max_concurrency")])
def test_requests_that_the_measured_cache_holds(name: str) -> None:
    row = ROWS[name]
    planned = candidate(row)
    pool = vllm_pool(
        planned.model, planned.storage, in_flight_tokens(planned), draft_layers(planned), state_blocks(planned)
    )
    requests = (row.kv_gib or 0) * GIB / pool.needed_bytes(planned.context, *layers_held(row))
    off = requests / (row.measured("max_concurrency") or 0) - 1
    assert (abs(off) <= TOKENS) != (name in TOKENS_EXCEPTIONS), f"{off:+.2%}"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.measured("weights_gib_per_gpu")])
def test_weights(name: str) -> None:
    row = ROWS[name]
    planned = candidate(row)
    placed = place_tensor_engine(planned, [float(10**13)] * len(planned.gpu_indices))
    off = placed.gpus[0].weights / GIB / row.measured("weights_gib_per_gpu") - 1
    assert (abs(off) <= WEIGHTS) != (name in WEIGHTS_EXCEPTIONS), f"{off:+.2%}"


def has_a_plan(row: Row) -> bool:
    """Whether the row names its card, its part of it and what came out."""
    known = has_known_card(row) and row.data.get("fraction") and row.version and row.engine != "llama.cpp"
    return bool(known and row.kv_gib and row.measured("weights_gib_per_gpu"))


def without_a_plan(row: Row) -> list[str]:
    """Why a row's plan as a whole is not asserted: what its source does not tell, or rigup does not plan."""
    if row.engine == "llama.cpp":
        return ["llama.cpp: its caches are held to the byte; a log names no part of a card to fill"]
    lacking = {
        "the card is not named, or not in the catalogue": not has_known_card(row),
        "no part of the card is named": not row.data.get("fraction"),
        "no release that the catalogue knows is named": not row.version,
        "weights are not told": not row.measured("weights_gib_per_gpu"),
    }
    return [why for why, lacks in lacking.items() if lacks]


def test_every_row_is_held_against_something() -> None:
    asserted = {name for name, row in ROWS.items() if row.data.get("bytes_per_token") or has_a_plan(row)}
    assert asserted == ROWS.keys() and len(ROWS) == 73


def lacking_lines() -> list[str]:
    """The rows without a whole plan by cause, as the page lists them."""
    causes: dict[str, list[str]] = {}
    for name, row in ROWS.items():
        for why in without_a_plan(row) if not has_a_plan(row) else ():
            causes.setdefault(why, []).append(name)
    return [f"| {why} | {', '.join(names)} |" for why, names in causes.items()]


def test_a_row_without_a_whole_plan_has_a_cause() -> None:
    assert [name for name, row in ROWS.items() if has_a_plan(row) == bool(without_a_plan(row))] == []


@pytest.mark.parametrize("line", lacking_lines())
def test_the_page_says_why_a_row_has_no_whole_plan(line: str) -> None:
    assert line in DOCUMENT


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if has_a_plan(row)])
def test_the_whole_plan(name: str) -> None:
    """KV cache and total from nothing but the card, the fraction and the engine's defaults."""
    row = ROWS[name]
    cache, total = off_by(row, candidate(row))
    said = f"KV cache {cache:+.2%}, total {total:+.2%}"
    assert (abs(cache) <= TOKENS and abs(total) <= TOKENS) != (name in PLAN_EXCEPTIONS), said


@pytest.mark.parametrize("name", list(OTHER_SEQUENCES))
def test_the_whole_plan_for_other_sequences(name: str) -> None:
    cache, total = off_by(ROWS[name], replace(candidate(ROWS[name]), sequences=OTHER_SEQUENCES[name]))
    assert abs(cache) <= TOKENS and abs(total) <= TOKENS, f"KV cache {cache:+.2%}, total {total:+.2%}"


def off_by(row: Row, planned: Candidate) -> tuple[float, float]:
    """By how much the plan's KV cache, and its weights and cache together, are off."""
    placed = place_tensor_engine(planned, [float(room or 0) for room in capacities(planned)])
    assert not placed.missing
    first = placed.gpus[0]
    weights, cache = row.measured("weights_gib_per_gpu") or 0, row.kv_gib or 0
    total = (first.weights + first.kv_cache) / GIB / (weights + cache) - 1
    return first.kv_cache / GIB / cache - 1, total


def percent(off: float | None) -> str:
    """An error as the page has it; "" where the row does not tell."""
    return "" if off is None else f"{off:+.1%}".replace("%", " %")


def row_line(row: Row) -> str:
    """One row of the table of docs/accuracy.md. A figure that an exception is about is marked with a star."""
    planned = candidate(row)
    weights = row.measured("weights_gib_per_gpu") if row.engine != "llama.cpp" else None
    off: dict[str, float | None] = {"weights": None, "cache": None}
    if weights:
        placed = place_tensor_engine(planned, [float(10**13)] * len(planned.gpu_indices))
        off["weights"] = placed.gpus[0].weights / GIB / weights - 1
    if has_a_plan(row):
        placed = place_tensor_engine(planned, [float(room or 0) for room in capacities(planned)])
        off["cache"] = placed.gpus[0].kv_cache / GIB / (row.kv_gib or 0) - 1
    each = f"{bytes_per_token(row):,.0f}" + ("*" if row.name in BYTES_EXCEPTIONS else "")
    cells = (
        row.data["model"],
        f"{row.engine} {row.version}".strip(),
        row.data["gpus"],
        f"TP{planned.parallel.tensor}" if row.engine != "llama.cpp" else "",
        each,
        percent(off["weights"]) + ("*" if row.name in WEIGHTS_EXCEPTIONS else ""),
        percent(off["cache"]) + ("*" if row.name in PLAN_EXCEPTIONS else ""),
        row.name,
    )
    return f"| {' | '.join(cells)} |".replace("  ", " ")


@pytest.mark.parametrize("name", list(ROWS))
def test_the_page_has_the_row(name: str) -> None:
    assert row_line(ROWS[name]) in DOCUMENT


def exception_lines() -> list[str]:
    """What is off and why, as the page lists it."""
    tables = (
        ("bytes a token", BYTES_EXCEPTIONS),
        ("tokens", TOKENS_EXCEPTIONS),
        ("weights", WEIGHTS_EXCEPTIONS),
        ("cache of the plan", PLAN_EXCEPTIONS),
    )
    return [f"| {name} | {what} | {why} |" for what, table in tables for name, why in table.items()]


@pytest.mark.parametrize("line", exception_lines())
def test_the_page_has_the_exception(line: str) -> None:
    assert line in DOCUMENT


def overhead_lines() -> list[str]:
    """Every figure of the toolkit's data about processes."""
    lines = []
    for name, figures in sorted(runtimes().items()):
        for profile in figures.sampler:
            lines.append(
                f"| {name} | {_releases(profile)} | sampler | | {profile.bytes:g} bytes x sequences x vocabulary |"
            )
        for what, entries in (("process", figures.process), ("graphs", figures.graphs)):
            for entry in entries:
                model = ", ".join(f"`{kind}`" for kind in entry.attention) or ("with experts" if entry.experts else "")
                about = f"TP{entry.ranks}" + (f", {model}" if model else "")
                batch = f" for {entry.sequences} sequences" if what == "graphs" else ""
                lines.append(f"| {name} | {_releases(entry)} | {what} | {about} | {entry.mib:,.0f} MiB{batch} |")
    return lines


def _releases(entry: Ranged) -> str:
    since, before = (f"from {entry.since}" if entry.since else "", f"before {entry.before}" if entry.before else "")
    return " ".join(part for part in (since, before) if part) or "all"


@pytest.mark.parametrize("line", overhead_lines())
def test_the_page_has_the_overhead(line: str) -> None:
    assert line in (DOCS / "memory.md").read_text()
