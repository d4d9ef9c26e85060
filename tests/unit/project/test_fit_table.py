"""Which models fit a rig and which rigs hold a model: the planner's own decisions, filtered and sorted."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.lock import Lock
from rigup.planner.decide import decide
from rigup.planner.decision import Decision
from rigup.planner.inputs.locked import planning_request
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.project import fit_table
from rigup.project.fit_table import COUNTS, FitFilter, fit_of, fits_of, in_order, least_to_buy, rig_with, smallest_of
from rigup.rig import Rig
from rigup.service import Service

CATALOGUE = load_catalogue()
LOCK = Lock()
LLAMA = "Llama-3.3-70B-Instruct"


def rig(gpus: str, **more: Any) -> Rig:
    return read_rig({"gpus": gpus, **more}, "test", CATALOGUE)


def model(name: str) -> Any:
    return CATALOGUE.models_by_name[name]


@pytest.fixture(scope="module")
def two_3090() -> tuple[fit_table.Fit, ...]:
    return fits_of(rig("2x RTX 3090"), CATALOGUE, LOCK)


def test_every_model_is_there_as_the_planner_decides_it(two_3090: tuple[fit_table.Fit, ...]) -> None:
    assert [fit.model.name for fit in two_3090] == [model.name for model in CATALOGUE.served]
    for fit in two_3090:
        request = planning_request(fit.rig, Service(name="fit", model=fit.model.name), CATALOGUE, LOCK)
        outcome = decide(request)
        if isinstance(outcome, Decision):
            assert fit.decision is not None
            assert fit.decision.candidate == outcome.candidate
            assert fit.speed == outcome.decode_tokens_per_second
            assert fit.quality is not None and fit.quality.text == outcome.quality
        else:
            assert fit.decision is None and fit.quality is None
            assert fit.reason and outcome.findings[0].message.endswith(fit.reason)


def test_a_refusal_without_advice_has_the_same_reasons() -> None:
    request = planning_request(rig("2x RTX 3090"), Service(name="fit", model="gpt-oss-120b"), CATALOGUE, LOCK)
    told, short = decide(request), decide(request, advise=False)
    assert not isinstance(told, Decision) and not isinstance(short, Decision)
    assert [(found.rule, found.message) for found in short.findings] == [
        (found.rule, found.message) for found in told.findings
    ]
    assert short.alternatives == ()


def test_a_model_without_a_checkpoint_does_not_fit() -> None:
    lonely = model(LLAMA).model_copy(update={"name": "lonely"})
    fit = fit_of(rig("1x RTX 3090"), lonely, CATALOGUE, LOCK)
    assert (fit.decision, fit.reason) == (None, "the catalogue has no checkpoint of it")
    assert (fit.context, fit.middle_speed, fit.spread) == (0, 0, "")


def test_a_context_that_is_asked_for_turns_the_choice() -> None:
    four = rig("4x RTX 3090", host_memory_gib=128)
    plain, longer = (fit_of(four, model(LLAMA), CATALOGUE, LOCK, context) for context in (0, 100_000))
    assert plain.decision and longer.decision
    assert plain.context < 100_000 == longer.context
    assert plain.decision.candidate.checkpoint != longer.decision.candidate.checkpoint
    assert fit_of(four, model(LLAMA), CATALOGUE, LOCK, 10_000_000) == plain


def test_orders(two_3090: tuple[fit_table.Fit, ...]) -> None:
    fits = [fit for fit in two_3090 if fit.decision]
    by_quality = [(fit.quality.rank, -fit.middle_speed) for fit in in_order(fits, "quality") if fit.quality]
    assert len(by_quality) == len(fits) > 5
    assert by_quality == sorted(by_quality)
    speeds = [fit.middle_speed for fit in in_order(fits, "speed")]
    assert speeds == sorted(speeds, reverse=True)
    contexts = [fit.context for fit in in_order(fits, "context")]
    assert contexts == sorted(contexts, reverse=True)


def test_filters(two_3090: tuple[fit_table.Fit, ...]) -> None:
    assert not any(FitFilter().accepts(fit) for fit in two_3090 if fit.decision is None)
    long = [fit for fit in two_3090 if FitFilter(context=200_000).accepts(fit)]
    assert long and all(fit.context >= 200_000 for fit in long)
    fast = [fit for fit in two_3090 if FitFilter(speed=30).accepts(fit)]
    assert fast and all(fit.speed.low >= 30 for fit in fast)
    free = {fit.model.name for fit in two_3090 if FitFilter(commercial=True).accepts(fit)}
    assert "SmolLM2-135M-Instruct" in free
    assert all(model(name).license for name in free)


def test_a_forbidden_license_is_filtered() -> None:
    large = rig("8x H200")
    forbidden = fit_of(large, model("MiniMax-M2.7"), CATALOGUE, LOCK)
    assert FitFilter().accepts(forbidden) and not FitFilter(commercial=True).accepts(forbidden)


def test_the_smallest_count_of_each_gpu() -> None:
    wanted = FitFilter(context=65_536)
    found = smallest_of(model("gpt-oss-120b"), wanted, CATALOGUE, LOCK)
    assert [fit.rig.gpus[0] for fit in found] == list(CATALOGUE.gpus)
    counts = {fit.rig.gpus[0].key: fit.gpu_count for fit in found if wanted.accepts(fit)}
    assert len(counts) > 10 and set(counts.values()) <= set(COUNTS)
    for fit in found:
        smaller = [count for count in COUNTS if count < fit.gpu_count]
        if wanted.accepts(fit) and smaller:
            fewer = fit_of(rig_with(fit.rig.gpus[0], smaller[-1], None), fit.model, CATALOGUE, LOCK, wanted.context)
            assert not wanted.accepts(fewer)
        elif not wanted.accepts(fit):
            assert fit.gpu_count == COUNTS[-1]
    bought = [fit.gpu_count for fit in least_to_buy(found)]
    assert bought == sorted(bought)


def test_a_gpu_that_shares_its_hosts_memory_needs_a_host_each() -> None:
    (gb10,) = (gpu for gpu in CATALOGUE.gpus if gpu.unified_memory)
    pair = rig_with(gb10, 2, 119)
    assert (len(pair.gpus), pair.hosts_per_service, pair.host_memory_gib) == (1, 2, 119)
    (found,) = (
        fit for fit in smallest_of(model("gpt-oss-120b"), FitFilter(), CATALOGUE, LOCK, 119) if fit.rig.gpus[0] == gb10
    )
    assert found.decision is not None and found.gpu_count == 1


def test_words_for_the_placement() -> None:
    spreads = {
        gpus: fit_of(rig(gpus, host_memory_gib=64), model(name), CATALOGUE, LOCK).spread
        for gpus, name in (
            ("none", "SmolLM2-135M-Instruct"),
            ("1x RTX 3090", "SmolLM2-135M-Instruct"),
            ("4x RTX 3090", "MiniMax-M2.5"),
            ("4x RTX PRO 6000 Blackwell Workstation Edition", "gpt-oss-120b"),
        )
    }
    assert list(spreads.values()) == ["CPU", "1 GPU", "4 GPUs", "TP4"]


def test_host_memory_is_told() -> None:
    four = rig("4x RTX 3090", host_memory_gib=128)
    assert fit_of(four, model("MiMo-V2.5"), CATALOGUE, LOCK).needs_host_memory
    assert not fit_of(four, model("gpt-oss-120b"), CATALOGUE, LOCK).needs_host_memory
