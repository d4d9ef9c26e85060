"""Where the bytes of a checkpoint lie, and what one token reads of them."""

from __future__ import annotations

from functools import partial

import pytest

from rigup.attention.attention_class import Storage
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.errors import InputError
from rigup.planner.memory.kv_cache import token_bytes
from rigup.planner.memory.weights import active_bytes, bits_per_weight, check_size, rank_layers, weights_of
from rigup.tensor_bytes import TensorBytes
from tests.unit.planner.asking import FP8, NVFP4, catalogue


def entry(repo: str, quant: str | None = None) -> CheckpointEntry:
    return next(e for e in catalogue().checkpoints if e.repo == repo and quant in (None, e.quant))


def model_of(checkpoint: CheckpointEntry) -> Model:
    return catalogue().models_by_name[checkpoint.model]


LISTED_WITH_MORE = ("nvidia/MiniMax-M2.5-NVFP4", "nvidia/MiniMax-M2.7-NVFP4")
"""Whose listed size is more than all tensors of their class: docs/judges.md."""


@pytest.mark.parametrize("checkpoint", catalogue().checkpoints, ids=lambda c: c.label)
def test_the_parts_add_up_to_the_file(checkpoint: CheckpointEntry) -> None:
    model = model_of(checkpoint)
    parts = weights_of(checkpoint, model)
    total = parts.embedding + parts.head + parts.body
    table = checkpoint.tensors
    if table is None:
        assert total == pytest.approx(checkpoint.bytes)
    else:  # headers, vision and draft layers are in the files as well
        assert total == pytest.approx(table.total - table.vision - table.mtp)
        assert table.total <= checkpoint.bytes < table.total * (1.05 if checkpoint.repo in LISTED_WITH_MORE else 1.02)
    assert len(parts.layers) == model.layers
    assert min(parts.embedding, *(layer.total for layer in parts.layers)) > 0
    assert parts.experts > 0 or not model.experts


@pytest.mark.parametrize(("repo", "size"), [(FP8, 2_000_000_000), (NVFP4, 6_000_000_000)])
def test_a_checkpoint_with_too_few_bytes_is_said_to_be_wrong(repo: str, size: int) -> None:
    """Not planned with less than nothing on a card."""
    wrong = entry(repo).model_copy(update={"bytes": size})
    with pytest.raises(InputError) as raised:
        check_size(wrong, model_of(wrong))
    assert raised.value.message == (
        f"checkpoints: {wrong.label}: {size:,} bytes are too few for MiniMax-M2.5: embeddings, router and attention "
        "alone need more"
    )
    assert weights_of(wrong, model_of(wrong)).body >= 0, "what the lock says of its files is taken as it is"


def test_the_experts_of_an_fp8_checkpoint_are_a_byte_a_weight() -> None:
    checkpoint = entry(FP8)
    model = model_of(checkpoint)
    experts = weights_of(checkpoint, model).experts
    assert experts == pytest.approx(model.experts * model.expert_parameters, rel=0.001)


# Published active bytes a token: arithmetic of the model's shapes, and two GGUF mixes as measured by their readers.
@pytest.mark.parametrize(
    ("repo", "quant", "published"),
    [
        (FP8, None, 11.178e9),
        (NVFP4, None, 10.835e9),
        ("mratsim/MiniMax-M2.5-BF16-INT4-AWQ", None, 10.944e9),
        ("unsloth/MiniMax-M2.5-GGUF", "Q4_K_M", 6.6e9),
        ("unsloth/MiniMax-M2.5-GGUF", "UD-IQ2_M", 4.45e9),
    ],
)
def test_bytes_read_for_a_token(repo: str, quant: str | None, published: float) -> None:
    checkpoint = entry(repo, quant)
    assert active_bytes(checkpoint, model_of(checkpoint)) == pytest.approx(published, rel=0.05)


def test_a_batch_touches_more_experts_but_never_more_than_there_are() -> None:
    checkpoint = entry(FP8)
    model = model_of(checkpoint)
    read = [active_bytes(checkpoint, model, tokens) for tokens in (1, 2, 8, 64, 4096)]
    assert read == sorted(read)
    assert read[1] < 2 * read[0]
    assert read[-1] < checkpoint.bytes


@pytest.mark.parametrize(
    ("kind", "size"),
    [("f16", 253_952), ("bf16", 253_952), ("fp8", 126_976), ("q8_0", 134_912), ("q5_1", 95_232), ("q4_0", 71_424)],
)
def test_bytes_of_a_token_in_the_kv_cache(kind: str, size: int) -> None:
    assert token_bytes(catalogue().models_by_name["MiniMax-M2.5"], Storage("vllm", kind)) == size


def test_kv_heads_are_repeated_beyond_as_many_ranks_as_heads() -> None:
    model, storage = catalogue().models_by_name["MiniMax-M2.5"], partial(Storage, "vllm", "bf16")
    assert token_bytes(model, storage(8)) * 8 == token_bytes(model, storage(1))
    assert token_bytes(model, storage(16)) == token_bytes(model, storage(8))


def test_bits_count_what_is_left_after_pruning() -> None:
    pruned = entry("lukealonso/MiniMax-M2.5-REAP-139B-A10B-NVFP4")
    whole = entry(NVFP4)
    assert bits_per_weight(pruned, model_of(pruned)) == pytest.approx(bits_per_weight(whole, model_of(whole)), rel=0.05)


def with_table(layers: str, size: int = 10**12) -> CheckpointEntry:
    """A checkpoint of MiniMax-M2.5 with a table of its tensors."""
    tensors = TensorBytes.model_validate(
        {
            "embedding": 1000,
            "layers": [{"layers": layers, "attention": 80, "key_value": 80, "replicated": 10, "experts": 640}],
        }
    )
    return entry(FP8).model_copy(update={"tensors": tensors, "bytes": size, "quant": f"{layers} {size}"})


def test_a_table_of_tensors_is_the_only_truth() -> None:
    checkpoint = with_table("0-61")
    parts = weights_of(checkpoint, model_of(checkpoint))
    assert (parts.embedding, parts.body) == (1000, 62 * 810)
    assert rank_layers(checkpoint, model_of(checkpoint), 16, 16)[0] == 80 / 16 + 80 / 8 + 10 + 640 / 16


@pytest.mark.parametrize(
    ("layers", "size", "message"),
    [
        ("0-60", 10**12, "tensors.layers: 61 layers, but MiniMax-M2.5 has 62"),
        ("0-61", 1000, "tensors: 51,220 bytes are more than its files have (1,000)"),
    ],
)
def test_a_table_that_cannot_be_is_said_to_be_wrong(layers: str, size: int, message: str) -> None:
    wrong = with_table(layers, size)
    with pytest.raises(InputError) as raised:
        check_size(wrong, model_of(wrong))
    assert raised.value.message == f"checkpoints: {wrong.label}: {message}"


def copied(quant: str, repo: str, layers: int, copies: int) -> float:
    checkpoint = entry(repo, quant)
    parts = weights_of(checkpoint, model_of(checkpoint))
    return parts.expert_copies((1.0,) * layers + (0.0,) * (len(parts.layers) - layers), copies) / 2**20


def test_matrices_of_experts_are_copied_to_one_place_which_states_break_up() -> None:
    """512 experts of 4,096 x 1,024: 1,152 MiB in q4_K, 1,680 in q6_K, 2,176 in q8_0."""
    repo = "unsloth/Qwen3.5-397B-A17B-GGUF"
    assert copied("Q8_0", repo, 20, 1) == 2176
    assert copied("Q8_0", repo, 20, 2) == 2 * 2176
    # of its published size, which is not that of llama-quantize's own mix
    assert 1680 <= copied("Q4_K_M", repo, 20, 1) < 1720
    assert copied("Q4_K_M", repo, 0, 2) == 0


def test_matrices_that_no_table_names_count_as_all_of_a_layer() -> None:
    checkpoint = entry("unsloth/MiniMax-M2.5-GGUF", "UD-Q4_K_XL")
    parts = weights_of(checkpoint, model_of(checkpoint))
    assert parts.layers[0].expert_matrix == 0
    assert parts.expert_copies((1.0,) * len(parts.layers), 1) == parts.experts
