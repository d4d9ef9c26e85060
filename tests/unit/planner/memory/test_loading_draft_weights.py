"""What drafts tokens is counted: weights, cache, states and buffers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.planner.memory.fit import place_in_memory
from rigup.planner.memory.loading import draft_attention, draft_weights
from rigup.planner.memory.weights import weights_of
from rigup.planner.rules.speculative import speculative_tokens
from rigup.units import MIB
from tests.unit.planner.drafts import GLM, QWEN, drafting, gguf_with_mtp, helped, placed, small_model
from tests.unit.planner.rules.builder import candidate

MIMO = "XiaomiMiMo/MiMo-V2.5"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_weights_of_the_layers_are_counted_to_the_byte_and_cut_by_tensor_parallelism(engine: str) -> None:
    asked = drafting(engine)
    with_it, without = placed(asked), placed(replace(asked, draft=None))
    built_in = weights_of(asked.checkpoint, asked.model).mtp
    more = [one.weights - other.weights for one, other in zip(with_it.usage, without.usage, strict=True)]
    assert built_in > 400e6
    assert more == [built_in / 2] * 2


def test_only_the_modules_that_the_engine_loads_are_counted() -> None:
    """MiMo V2 has three modules: vLLM makes one of them, SGLang one for each drafted token."""
    weights, layers = {}, {}
    for engine in ("vllm", "sglang"):
        asked = candidate("8x H200", MIMO, engine, parallel={"tensor": 8}, sequences=16, draft=Draft("mtp", 3))
        weights[engine], layers[engine] = draft_weights(asked) * 8, draft_attention(asked)
    built_in = weights_of(asked.checkpoint, asked.model).mtp
    assert (weights["vllm"], weights["sglang"]) == (pytest.approx(built_in / 3), built_in)
    assert [sum(len(entry.layers) for entry in each) for each in layers.values()] == [1, 3]
    assert not speculative_tokens(candidate("8x H200", MIMO, parallel={"tensor": 8}, draft=Draft("mtp", 4)))


def test_the_cache_is_that_of_one_layer_more() -> None:
    """GLM-5.2 keeps 576 values of latent and 128 of index and a scale in each layer that has an indexer of its own."""
    asked = candidate("8x H200", GLM, parallel={"tensor": 8}, sequences=16, batched_tokens=2048, draft=Draft("mtp", 3))
    with_it, without = placed(asked), placed(replace(asked, draft=None))
    (one,) = {use.kv_cache / with_it.kv_tokens for use in with_it.usage}
    (other,) = {use.kv_cache / without.kv_tokens for use in without.usage}
    assert one - other == asked.model.mtp_attention[0].caches(asked.storage)[0].token_bytes + sum(
        cache.token_bytes for cache in asked.model.mtp_attention[0].caches(asked.storage)[1:]
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_graphs_are_as_large_as_the_steps_that_verify(engine: str) -> None:
    asked = drafting(engine, tokens=3, sequences=4)
    same = replace(asked, draft=None, sequences=16)
    assert asked.runtime == same.runtime
    assert asked.runtime.after > replace(asked, draft=None).runtime.after > 0
    assert replace(asked, eager=True).runtime.after == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_each_drafted_token_has_a_state_of_linear_attention(engine: str) -> None:
    context = 262_144
    room = {tokens: placed(drafting(engine, tokens, context=context)).kv_tokens for tokens in (1, 3, 8)}
    if engine == "vllm":  # requests hold states and tokens in one pool
        assert room[1] > room[3] > room[8]
    else:  # the pool of states has its own part, of which less is left over
        assert min(room.values()) > 0.9 * max(room.values())


def test_llama_cpp_has_a_second_context_on_the_last_gpu() -> None:
    asked = gguf_with_mtp()
    with_it, without = placed(asked), placed(replace(asked, draft=None))
    total = [sum(use.weights for use in settled.usage) for settled in (with_it, without)]
    assert total[0] - total[1] == pytest.approx(451_215_360)
    cache = [sum(use.kv_cache for use in settled.usage) for settled in (with_it, without)]
    heads = 4 * 256 * 2 * 2 * 32_768  # K and V of four heads, two bytes each, of one layer
    states = [entry for entry in asked.model.attention if entry.kind == "gated_delta"]
    state = sum(sum(c.state_bytes for c in entry.caches(asked.storage)) * len(entry.layers) for entry in states)
    assert cache[0] - cache[1] == pytest.approx(heads + 3 * state)
    assert with_it.usage[-1].overhead > without.usage[-1].overhead
    # The file's layer is one for the split, loaded or not.
    assert sum(with_it.tensor_split) == sum(without.tensor_split) == asked.model.layers + 2


SERVED = st.sampled_from([("vllm", QWEN, 2), ("sglang", QWEN, 2), ("vllm", GLM, 8), ("sglang", GLM, 8)])


@given(SERVED, st.integers(1, 16), st.integers(1, 200_000), st.integers(1, 256))
def test_drafting_adds_up_and_never_takes_less(
    served: tuple[str, str, int], tokens: int, context: int, sequences: int
) -> None:
    engine, repo, gpus = served
    asked = candidate(
        f"{gpus}x H200", repo, engine, parallel={"tensor": gpus}, sequences=sequences, context=context,
        batched_tokens=2048, memory_fraction=0.9,
    )  # fmt: skip
    without, with_it = place_in_memory(asked), place_in_memory(replace(asked, draft=Draft("mtp", tokens)))
    if not isinstance(with_it, Candidate):
        return
    assert isinstance(without, Candidate)
    if (engine, repo) != (
        "sglang",
        QWEN,
    ):  # which reserves states for more requests than run, and gives tokens the rest
        assert with_it.kv_tokens <= without.kv_tokens
    for more, less in zip(with_it.memory, without.memory, strict=True):
        parts = more.weights_mib + more.kv_cache_mib + more.overhead_mib + more.free_mib
        assert parts == more.capacity_mib
        assert more.weights_mib > less.weights_mib
        assert more.overhead_mib >= less.overhead_mib


def test_a_smaller_model_is_cut_over_the_ranks_and_its_layers_keep_every_token() -> None:
    asked = helped()
    with_it, without = placed(asked), placed(replace(asked, draft=None))
    more = [one.weights - other.weights for one, other in zip(with_it.usage, without.usage, strict=True)]
    assert more == pytest.approx([1_192_099_840 / 8] * 8, rel=0.001)
    token = [use.kv_cache / settled.kv_tokens for settled in (with_it, without) for use in settled.usage[:1]]
    assert token[0] - token[1] == 28 * 2 * 128 * 2  # one of eight KV heads on each rank, K and V, two bytes each


def test_sglang_takes_a_draft_layer_for_one_of_the_model() -> None:
    """The target keeps one of four KV heads on each rank, as much as the small model's one of eight."""
    with_it, without = placed(helped("sglang")), placed(replace(helped("sglang"), draft=None))
    room = (without.usage[0].kv_cache - (with_it.usage[0].weights - without.usage[0].weights)) / without.usage[
        0
    ].kv_cache
    assert with_it.kv_tokens / without.kv_tokens == pytest.approx(room * 94 / (94 + 28), rel=0.001)


def test_a_smaller_model_of_llama_cpp_lies_whole_on_the_last_gpu() -> None:
    with_it, without = placed(helped("llama.cpp")), placed(replace(helped("llama.cpp"), draft=None))
    total = [sum(use.weights for use in settled.usage) for settled in (with_it, without)]
    assert total[0] - total[1] == pytest.approx(639_446_688, rel=0.001)
    cache = [sum(use.kv_cache for use in settled.usage) for settled in (with_it, without)]
    assert cache[0] - cache[1] == 28 * 8 * 128 * 2 * 2 * 32_768
    for more, less in zip(with_it.usage[:-1], without.usage[:-1], strict=True):
        assert more.overhead == less.overhead
    assert with_it.usage[-1].overhead > without.usage[-1].overhead


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_of_a_smaller_model_of_llama_cpp_are_in_host_memory(tied: bool) -> None:
    """As the model's own are; a tied output is a copy of them on the GPU, and the same bytes on a CPU."""
    asked = helped("llama.cpp", model=small_model().model_copy(update={"tied_embeddings": tied}))
    assert asked.draft is not None and asked.draft.checkpoint is not None and asked.draft.model is not None
    own = weights_of(asked.draft.checkpoint, asked.draft.model)
    assert (own.head == 0) == tied and own.embedding > 160e6
    with_it, without = placed(asked), placed(replace(asked, draft=None))
    host = with_it.host_memory_mib - without.host_memory_mib
    assert host == pytest.approx(own.embedding / MIB, abs=1)
    on_gpus = sum(use.weights for use in with_it.usage) - sum(use.weights for use in without.usage)
    assert on_gpus == pytest.approx(own.body + (own.head or own.embedding))
    cpu = replace(asked, gpu_indices=(), rig=asked.rig.model_copy(update={"gpus": (), "host_memory_gib": 1024}))
    parts = [placed(each).host_parts for each in (cpu, replace(cpu, draft=None))]
    assert parts[0] and parts[1]
    assert parts[0].weights - parts[1].weights == pytest.approx(own.body + own.head + own.embedding, abs=2)
