"""What llama.cpp's buffers are counted to take, against what llama.cpp b11434 itself reserves for the same options.

The figures are the sizes that its own code reserves on devices of these sizes (no_alloc), with types by llama-quantize.
"""

from __future__ import annotations

from typing import Any

import pytest

from rigup.catalogue.buffers import BatchShape
from rigup.planner.candidate import Candidate
from rigup.planner.memory.llama_cpp_buffers import (
    PIPELINE_COPIES,
    Arrangement,
    by_shape,
    layer_inputs,
    reservations,
)
from rigup.units import MIB
from tests.unit.planner.asking import PRO_6000, catalogue, refused, served

QWEN, GLM = "Qwen3.5-397B-A17B", "GLM-5.2"
CODER = "Qwen3-Coder-480B-A35B-Instruct"


def offloaded(gpus: str, model: str, context: int, host_gib: int, **more: Any) -> Candidate:
    """Some experts in host memory, f16 caches where they fit."""
    asked = {"checkpoint": f"unsloth/{model}-GGUF", "quant": "Q4_K_M", "context": context, **more}
    return served(gpus, {**asked, "engine": "llama.cpp"}, host_gib)


def compute_mib(candidate: Candidate, position: int = 0) -> float:
    return (candidate.usage[position].overhead - candidate.runtime.total) / MIB


@pytest.mark.parametrize(
    ("gpus", "model", "context", "host_gib", "reserved_mib"),
    [
        ("2x RTX 3090", QWEN, 59_392, 256, 3470.0),
        ("8x RTX 3090", QWEN, 61_440, 512, 3472.0),
        (f"1x {PRO_6000}", QWEN, 100_352, 256, 3510.0),
        ("8x RTX 3090", GLM, 53_248, 512, 3028.1),
        ("2x RTX 3090", CODER, 32_768, 256, 2184.8),
    ],
)
def test_the_first_gpu_has_room_for_copies_of_experts(
    gpus: str, model: str, context: int, host_gib: int, reserved_mib: float
) -> None:
    found = offloaded(gpus, model, context, host_gib, flags={"--ubatch-size": 512})
    assert found.offloads_experts
    assert reserved_mib <= compute_mib(found) < 2.1 * reserved_mib
    assert all(compute_mib(found, other) < 2000 for other in range(1, len(found.usage)))


@pytest.mark.parametrize("more", [{"flags": {"--no-op-offload": True}}, {"flags": {"--ubatch-size": 16}}])
def test_nothing_is_copied_where_the_processor_computes_its_experts(more: dict[str, Any]) -> None:
    assert compute_mib(offloaded("8x RTX 3090", QWEN, 61_440, 512, **more)) < 500


def test_nothing_is_copied_where_gpu_and_host_share_memory() -> None:
    found = offloaded("GB10", "Qwen3.6-35B-A3B", 4096, 128, flags={"--n-cpu-moe": 10})
    assert found.cpu_moe_layers == 10
    assert compute_mib(found) < 500


@pytest.mark.parametrize(
    ("model", "context", "kind", "copies", "micro_batch", "reserved_mib"),
    [
        (QWEN, 131_072, "q8_0", PIPELINE_COPIES, 1024, 1735.3),
        (QWEN, 131_072, "q8_0", 1, 1024, 776.3),
        ("Qwen3.6-27B", 262_144, "f16", PIPELINE_COPIES, 2048, 5104.3),
        (GLM, 768_000, "f16", 1, 512, 3252.1),
        (GLM, 896_000, "f16", 1, 512, 3752.1),
        ("SmolLM2-135M-Instruct", 8192, "f16", PIPELINE_COPIES, 512, 59.1),
    ],
)
def test_buffers_are_counted_high_but_not_double(
    model: str, context: int, kind: str, copies: int, micro_batch: int, reserved_mib: float
) -> None:
    counted = by_shape(catalogue().models_by_name[model], BatchShape(context, 1, micro_batch), kind, copies) / MIB
    assert reserved_mib <= counted < 2.1 * reserved_mib


@pytest.mark.parametrize(
    ("model", "context", "copies", "layers", "reserved_mib"),
    [
        ("MiniMax-M3", 524_288, PIPELINE_COPIES, range(0), 11_558),
        ("MiniMax-M3", 524_288, PIPELINE_COPIES, range(10, 17), 37_099),
        ("MiniMax-M3", 524_288, PIPELINE_COPIES, range(44, 52), 41_205),
        ("MiniMax-M3", 125_952, 1, range(15, 30), 4_988),
        ("GLM-5.3-Flash", 1_048_576, PIPELINE_COPIES, range(13, 19), 6_864),
        ("GLM-5.3-Flash", 1_048_576, PIPELINE_COPIES, range(19, 24), 10_989),
        ("Mistral-Small-4-119B-2603", 262_144, PIPELINE_COPIES, range(18), 3_509),
        ("Mistral-Small-4-119B-2603", 262_144, PIPELINE_COPIES, range(4), 1_677),
    ],
)
def test_layers_with_inputs_of_their_own_take_them_on_their_gpu(
    model: str, context: int, copies: int, layers: range, reserved_mib: int
) -> None:
    shape = catalogue().models_by_name[model]
    batch = BatchShape(context, 1, 512)
    inputs = layer_inputs(shape, batch, copies)
    counted = by_shape(shape, batch, "f16", copies) + sum(inputs[layer] for layer in layers)
    assert reserved_mib <= counted / MIB < 1.7 * reserved_mib


def test_the_gpu_that_makes_a_mask_needs_no_copy_of_it() -> None:
    found = served("8x H200", {"checkpoint": "unsloth/MiniMax-M3-GGUF", "quant": "Q8_0", "engine": "llama.cpp"})
    cell = PIPELINE_COPIES * 4 * found.batched_tokens * found.context / MIB
    assert compute_mib(found, 1) - compute_mib(found) >= 5 * cell


def test_streams_of_hyper_connections_are_inputs_of_a_pipelined_step() -> None:
    """Hy4: 1,743 MiB for 16,384 tokens on the second of eight GPUs."""
    hy4 = catalogue().models_by_name["Hy4-preview"]
    assert hy4.residual_streams == 4
    counted = by_shape(hy4, BatchShape(16_384, 1, 512), "f16", PIPELINE_COPIES) / MIB
    assert 1743 <= counted < 1.4 * 1743


def test_host_experts_end_pipelining() -> None:
    """Then inputs have one copy (llama.cpp b11434 src/llama-context.cpp: no tensor overrides)."""
    whole, without = (
        offloaded("8x RTX 3090", "Qwen3-235B-A22B-Instruct-2507", 32_768, 256, flags=flags)
        for flags in ({}, {"--n-cpu-moe": 1, "--ubatch-size": 512})
    )
    assert (whole.offloads_experts, without.offloads_experts) == (False, True)
    mask = 2 * 512 * 32_768 / MIB
    assert compute_mib(whole, 1) - compute_mib(without, 1) > (PIPELINE_COPIES - 1) * mask


def test_logits_are_those_of_the_last_tokens() -> None:
    asked = {"model": "Qwen3.6-35B-A3B", "quant": "Q8_0", "engine": "llama.cpp", "context": 4096}
    one, many = (served("4x RTX 3090", {**asked, "concurrency": slots, "context": 4096 // slots}) for slots in (1, 4))
    vocabulary = catalogue().models_by_name["Qwen3.6-35B-A3B"].vocab
    assert compute_mib(one, 3) - compute_mib(one, 2) == pytest.approx(4 * vocabulary / MIB)
    assert compute_mib(many, 3) - compute_mib(many, 2) == pytest.approx(4 * 4 * vocabulary / MIB)


def test_layers_cut_by_tensor_are_shared_out_evenly() -> None:
    asked = {"model": "Llama-3.3-70B-Instruct", "quant": "Q4_K_M", "engine": "llama.cpp", "context": 32_768}
    whole, cut = (served("4x RTX 3090", {**asked, **more}, 64) for more in ({}, {"tensor_parallel": 4}))
    assert (cut.tensor_split, cut.parallel.tensor) == ((), 4)
    one, *others = cut.usage
    assert all(use == one for use in others)
    layer = max(use.weights for use in whole.usage) / 20
    held = sum(use.weights for use in whole.usage) / 4
    assert held < one.weights < held + 1.5 * layer
    assert one.kv_cache == pytest.approx(sum(use.kv_cache for use in whole.usage) / 4)
    assert compute_mib(cut) - 688 < compute_mib(whole), "steps are not pipelined, but NCCL has its part"


def test_nccl_counts_where_layers_are_cut_and_llama_cpp_is_compiled() -> None:
    asked = {"model": "Llama-3.3-70B-Instruct", "quant": "Q4_K_M", "engine": "llama.cpp", "context": 4096}
    two, four, image = (
        compute_mib(served("4x RTX PRO 6000 Blackwell Workstation Edition", {**asked, **more}, 64))
        for more in ({"tensor_parallel": 2}, {"tensor_parallel": 4}, {"tensor_parallel": 4, "build": "image"})
    )
    assert (two - image, four - image) == (pytest.approx(544), pytest.approx(688))


def test_what_llama_cpp_does_not_cut_is_whole_on_each_gpu() -> None:
    """Shared experts, and the key and value head of fewer heads than GPUs."""
    asked = {"model": "Qwen3.6-35B-A3B", "quant": "Q8_0", "engine": "llama.cpp", "context": 32_768}
    two, four = (served("4x RTX 3090", {**asked, "tensor_parallel": size}, 64).usage[0] for size in (2, 4))
    assert four.weights > two.weights / 2
    assert four.kv_cache > two.kv_cache / 2


def test_layers_that_are_cut_keep_their_experts_on_the_gpus() -> None:
    asked = {"model": "Qwen3-235B-A22B-Instruct-2507", "quant": "Q4_K_M", "engine": "llama.cpp", "context": 4096}
    assert served("2x RTX 3090", asked, 256).offloads_experts
    plan = refused("2x RTX 3090", {**asked, "tensor_parallel": 2}, 256)
    assert [each.rule for each in plan.refusals] == ["gpu-memory"]


def test_masks_are_as_wide_as_the_context_of_a_slot() -> None:
    asked = {"model": "gpt-oss-120b", "quant": "Q4_K_M", "engine": "llama.cpp", "context": 16_384}
    one, four, unified = (
        served("4x RTX 3090", {**asked, **more}, 64)
        for more in ({}, {"concurrency": 4}, {"concurrency": 4, "flags": {"--kv-unified": True}})
    )
    assert compute_mib(four, 1) == compute_mib(one, 1)
    mask = 2 * PIPELINE_COPIES * 512 * 16_384 / MIB
    assert compute_mib(unified, 1) - compute_mib(four, 1) == pytest.approx(3 * mask, abs=1)


def test_a_gpu_none_of_whose_experts_it_has_needs_no_room_to_compute_them() -> None:
    batch, arrangement = BatchShape(32_768, 1, 512), Arrangement(4, offloads=True, copies=True)
    second = reservations(catalogue().models_by_name["GLM-4.7"], "b11434", batch, "f16", arrangement)[1]
    assert second.bytes(23, bare=True) < second.bytes(23, bare=False) / 2


def test_a_shape_that_nobody_asked_about_is_counted_high() -> None:
    model = catalogue().models_by_name["Qwen3-235B-A22B-Instruct-2507"]
    other = model.model_copy(update={"name": "other", "expert_intermediate": model.expert_intermediate + 1})
    batch, arrangement = BatchShape(65_536, 1, 512), Arrangement(4, offloads=False, copies=False)
    known, shaped = (reservations(one, "b11434", batch, "f16", arrangement) for one in (model, other))
    each = [(one.bytes(23, bare=False), two.bytes(23, bare=False)) for one, two in zip(known, shaped, strict=True)]
    assert all(said < counted < 2 * said for said, counted in each)
