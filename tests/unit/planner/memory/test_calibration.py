"""Constants out of a fleet's own starts: never less than was measured, never out of too little."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.catalogue.data_files import read_file
from rigup.catalogue.overheads import MeasuredOverhead, measured_overhead, overheads_toml
from rigup.plan import Parallel
from rigup.planner.memory.calibration import (
    LEAST_MARGIN_MIB,
    LEAST_STARTS,
    Calibration,
    StartedGpu,
    StartRecord,
    calibrate,
    read_starts,
    runtime_needed,
    with_margin,
)

RTX_3090 = "NVIDIA GeForce RTX 3090"
PRO_6000 = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
WHEN = "2026-11-21 20:15:00 UTC"


def gpu(measured: int, parts: dict[str, Any] | None = None, **values: Any) -> dict[str, Any]:
    """A card of 24,576 MiB with 18,000 of weights, 2,000 of cache and 1,900 of overhead in the plan."""
    planned = {"capacity_mib": 24576, "weights_mib": 18000, "kv_cache_mib": 2000, "overhead_mib": 1900}
    return {"name": RTX_3090, "measured_mib": measured, "parts": parts or {}, **planned, **values}


def record(*gpus: dict[str, Any], when: str = WHEN, host: str = "a.lan", **values: Any) -> dict[str, Any]:
    kept = {"engine": "llama.cpp", "version": "b11434", "parallel": {}, "runtime_mib": 900, "gpus": list(gpus)}
    return {"schema": 1, "host": host, "when": when, "memory": {"chat": {**kept, **values}}}


def one(*records: dict[str, Any]) -> Calibration:
    (found,) = calibrate(read_starts(records))
    return found


def started(found: dict[str, Any]) -> tuple[StartRecord, StartedGpu]:
    (start,) = read_starts([found])
    return start, start.gpus[0]


def test_what_llama_cpp_takes_beside_a_step_is_its_constant() -> None:
    # 22,400 in use, 20,000 of weights and cache, 1,000 of the plan's 1,900 for a step
    assert runtime_needed(*started(record(gpu(22400)))) == 1400
    found = one(*(record(gpu(22000 + extra, when=WHEN)) for extra in (0, 400, 200)))
    assert (found.starts, found.runtime_mib, found.needed_mib, found.wanted_mib) == (3, 900, 1400, 1540)
    entry = found.entry
    assert entry is not None
    assert entry.sources == {
        "runtime_mib": "measured on 3 starts, 2026-11-21: at most 1,400 MiB, plus 140 MiB of margin"
    }


TOO_FEW = "of this kind, but 3 are needed"


@pytest.mark.parametrize("count", range(1, LEAST_STARTS))
def test_too_few_starts_are_said_and_calibrate_nothing(count: int) -> None:
    found = one(*(record(gpu(22400)) for _ in range(count)))
    assert (found.wanted_mib, found.entry, found.needed_mib) == (None, None, 1400)
    assert found.why_not == f"{count} start{'s' if count > 1 else ''} {TOO_FEW}"


def test_four_equal_gpus_are_one_start() -> None:
    found = one(*(record(*(gpu(22000 + n) for n in range(4))) for _ in range(2)))
    assert (found.starts, found.kind[3], found.why_not) == (2, 4, f"2 starts {TOO_FEW}")


def test_kinds_are_kept_apart() -> None:
    other = gpu(22400) | {"name": PRO_6000}
    records = [
        record(gpu(22400)),
        record(gpu(22400), version="b20000"),
        record(gpu(22400), gpu(22400)),
        record(gpu(22400, {"kv_cache_mib": 2000}), engine="vllm", parallel={"tensor": 1}),
        record(gpu(22400), other),
    ]
    found = calibrate(read_starts(records))
    assert [(c.kind[0], c.kind[1], c.kind[2] == PRO_6000, c.kind[3], c.starts) for c in found] == [
        ("llama.cpp", "b11434", False, 1, 1),
        ("llama.cpp", "b11434", False, 2, 2),
        ("llama.cpp", "b11434", True, 2, 1),
        ("llama.cpp", "b20000", False, 1, 1),
        ("vllm", "b11434", False, 1, 1),
    ]


def test_vllms_own_peak_counts_where_it_is_more_than_what_is_in_use_now() -> None:
    parts = {"weights_mib": 18100.0, "kv_cache_mib": 1500.0, "graphs_mib": 300.0}
    vllm = {"engine": "vllm", "fraction": 0.95, "runtime_mib": 900}
    # 0.95 x 24,576 less 18,000 and 1,500, less 1,000 for a step; the smaller figure of weights counts
    counted = started(record(gpu(21000, parts, graphs_counted=True), **vllm))
    assert runtime_needed(*counted) == pytest.approx(24576 * 0.95 - 18000 - 1500 - 1000)
    before = started(record(gpu(21000, parts), **vllm))
    assert runtime_needed(*before) == pytest.approx(24576 * 0.95 - 18000 - 1500 - 1000 + 300)
    sized = started(record(gpu(21000, parts), **vllm | {"fraction": None}))
    assert runtime_needed(*sized) == 21000 - 18000 - 1500
    in_use = started(record(gpu(24000, parts, graphs_counted=True), **vllm))
    assert runtime_needed(*in_use) == 24000 - 18000 - 1500


def test_nothing_is_taken_off_for_a_step_that_sglang_does_not_hold_while_it_is_idle() -> None:
    parts = {"weights_mib": 18000.0, "kv_cache_mib": 3000.0}
    start = started(record(gpu(23000, parts), engine="sglang", driver_mib=1400))
    assert runtime_needed(*start) == 23000 - 18000 - 3000 - 1400


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"engine": "vllm"}, "the engine's log does not say how large its KV cache is"),
        ({"gpus": [gpu(19000)]}, "less memory is in use than weights and KV cache alone should take"),
    ],
)
def test_a_start_that_tells_nothing_is_left_out_and_said(values: dict[str, Any], why: str) -> None:
    good = {"kv_cache_mib": 2000.0, "weights_mib": 18000.0}
    engine = {"engine": values.get("engine", "llama.cpp")}
    records = [record(gpu(22400, good), **engine) for _ in range(3)]
    found = one(*records, record(gpu(22400), **values))
    assert (found.starts, found.left_out) == (3, (f"a.lan, chat, {WHEN}: {why}",))
    assert found.wanted_mib is not None
    alone = one(record(gpu(22400), **values))
    assert (alone.starts, alone.wanted_mib, alone.needed_mib) == (0, None, None)
    assert alone.why_not == f"0 starts {TOO_FEW}"


def test_predicted_and_measured_are_compared_part_by_part() -> None:
    parts = {"weights_mib": 18090.0, "kv_cache_mib": 2000.0}
    found = one(record(gpu(22000, parts)), record(gpu(21500)))
    assert found.weights is not None and found.overhead is not None
    assert (found.weights.predicted_mib, found.weights.measured_mib, found.weights.error_percent) == (18000, 18090, 0.5)
    assert (found.total.predicted_mib, found.total.measured_mib, found.total.worst_mib) == (21900, 21750, -400)
    # the second log is silent: llama.cpp's weights and cache are as planned
    assert found.overhead.measured_mib == (22000 - 20090 + 21500 - 20000) / 2


@pytest.mark.parametrize(
    "broken",
    [
        {"schema": 1, "host": "a.lan", "when": WHEN},
        {"schema": 1, "host": "a.lan", "when": WHEN, "memory": []},
        {"schema": 1, "host": "a.lan", "when": WHEN, "memory": {"chat": None}},
        record(),
        record(gpu(22400), engine="of another age"),
        record({"name": RTX_3090}),
    ],
)
def test_records_of_another_kind_are_passed_over(broken: dict[str, Any]) -> None:
    assert read_starts([broken]) == []


def test_what_a_later_rigup_adds_is_not_a_hindrance() -> None:
    assert len(read_starts([record(gpu(22400) | {"temperature": 50}, later=True)])) == 1


def test_a_file_says_what_was_calibrated(tmp_path: Any) -> None:
    entry = one(*(record(gpu(22400), gpu(22300)) for _ in range(3))).entry
    assert entry is not None
    (tmp_path / "measured.toml").write_text(overheads_toml([entry]))
    assert read_file(tmp_path / "measured.toml", "overhead", MeasuredOverhead) == (entry,)
    assert measured_overhead([entry], "llama.cpp", "b11434", RTX_3090, 2, Parallel()) == entry
    assert measured_overhead([entry], "llama.cpp", "b11434", RTX_3090, 4, Parallel()) is None
    assert measured_overhead([entry], "llama.cpp", "b11434", RTX_3090, 2, Parallel(tensor=2)) is None


mibs = st.integers(0, 60_000)
said = st.one_of(st.none(), st.floats(0, 60_000, allow_nan=False))
cards = st.fixed_dictionaries(
    {
        "name": st.just(RTX_3090),
        "capacity_mib": mibs,
        "weights_mib": mibs,
        "kv_cache_mib": mibs,
        "overhead_mib": mibs,
        "measured_mib": mibs,
        "graphs_counted": st.booleans(),
        "parts": st.fixed_dictionaries({"weights_mib": said, "kv_cache_mib": said, "graphs_mib": said}),
    }
)
records = st.lists(
    st.builds(
        lambda engine, runtime, driver, fraction, found, day: record(
            found,
            when=f"2026-11-{day:02} 00:00:00 UTC",
            engine=engine,
            runtime_mib=runtime,
            driver_mib=driver,
            fraction=fraction if engine == "vllm" else None,
        ),
        st.sampled_from(["llama.cpp", "vllm", "sglang"]),
        mibs,
        st.integers(0, 2000),
        st.one_of(st.none(), st.floats(0.1, 1.0)),
        cards,
        st.integers(1, 28),
    ),
    max_size=12,
)


@given(records)
def test_no_constant_is_less_than_any_start_needed_and_a_margin(found: list[dict[str, Any]]) -> None:
    starts = read_starts(found)
    for calibration in calibrate(starts):
        if calibration.wanted_mib is None or calibration.needed_mib is None:
            continue
        same = [start for start in starts if start.engine == calibration.kind[0]]
        counted = [start for start in same if not any(start.when in line for line in calibration.left_out)]
        assert calibration.starts >= LEAST_STARTS
        for start in counted:
            assert calibration.wanted_mib >= runtime_needed(start, start.gpus[0]) + LEAST_MARGIN_MIB
            assert 10 * calibration.wanted_mib >= 11 * calibration.needed_mib


@given(records)
def test_with_its_constant_a_plan_is_not_less_than_what_was_in_use(found: list[dict[str, Any]]) -> None:
    starts = read_starts(found)
    for calibration in calibrate(starts):
        for start in starts:
            (card,) = start.gpus
            silent = card.parts.kv_cache_mib is None or start.engine == "llama.cpp"
            lines = [line for line in calibration.left_out if start.when in line]
            if calibration.wanted_mib is None or start.engine != calibration.kind[0] or lines:
                continue
            cache = card.kv_cache_mib if silent else card.parts.kv_cache_mib or 0
            step = max(card.overhead_mib - start.runtime_mib, 0)
            beside = step if start.engine == "llama.cpp" else max(step, start.driver_mib)
            assert card.weights_mib + cache + beside + calibration.wanted_mib >= card.measured_mib


@given(records, st.randoms())
def test_the_order_of_records_does_not_count(found: list[dict[str, Any]], random: Any) -> None:
    def constants(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(c.kind, c.starts, c.needed_mib, c.wanted_mib, c.why_not) for c in calibrate(read_starts(records))]

    shuffled = list(found)
    random.shuffle(shuffled)
    assert constants(shuffled) == constants(found)


@given(records, cards)
def test_one_more_start_never_lowers_a_constant(found: list[dict[str, Any]], more: dict[str, Any]) -> None:
    before = {c.kind: c.wanted_mib for c in calibrate(read_starts(found))}
    after = {c.kind: c.wanted_mib for c in calibrate(read_starts([*found, record(more)]))}
    for kind, wanted in before.items():
        if wanted is not None:
            larger = after[kind]
            assert larger is not None and larger >= wanted


@given(mibs)
def test_the_margin_is_a_tenth_or_128_mib(needed: int) -> None:
    assert with_margin(needed) - needed >= max(LEAST_MARGIN_MIB, needed / 10)
