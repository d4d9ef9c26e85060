"""Mistral's own format: which repositories are read in it, what is read, and what is refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.checkpoints.describe import describe
from rigup.checkpoints.mistral_format import HINT
from rigup.checkpoints.repository import local_repository
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.lab.hub.sparse_files import write_safetensors
from rigup.planner.drafting.draft import Draft
from tests.mistral_format import DENSE, LATENT, SEEING, VISION, tensors, write
from tests.unit.cli.test_model_add import TINY, tiny_tensors

SCALING = LATENT["llama_4_scaling"]
EXPERTS = LATENT["moe"]


def read(folder: Path, mistral: bool | None = None) -> tuple[Model, CheckpointEntry]:
    found = describe(local_repository(folder, f"org/{folder.name}"), None, {}, mistral=mistral)
    return found.model, found.checkpoint


def with_both(folder: Path, params: dict[str, Any]) -> Path:
    """The repository with a transformers' checkpoint beside it."""
    write(folder, params, config__json=json.dumps(TINY).encode())
    write_safetensors(folder / "model.safetensors", tiny_tensors())
    return folder


@pytest.mark.parametrize(
    ("params", "kind"),
    [
        (DENSE, "MistralForCausalLM"),
        ({**DENSE, "vision_encoder": VISION}, "PixtralForConditionalGeneration"),
        ({**DENSE, "multimodal": {"vision_encoder_args": VISION}}, "PixtralForConditionalGeneration"),
        (
            {**DENSE, "multimodal": {"whisper_model_args": {"encoder_args": {"dim": 8}}}},
            "VoxtralForConditionalGeneration",
        ),
        (
            {**DENSE, "multimodal": {"whisper_model_args": {"encoder_args": {"causal": True}}}},
            "VoxtralRealtimeGeneration",
        ),
        (LATENT, "MistralLarge3ForCausalLM"),
        ({key: value for key, value in LATENT.items() if key != "moe"}, "MistralLarge3ForCausalLM"),
        (SEEING, "PixtralForConditionalGeneration"),
    ],
)
def test_engines_are_asked_for_the_class_that_they_make_of_it(
    tmp_path: Path, params: dict[str, Any], kind: str
) -> None:
    model, checkpoint = read(write(tmp_path / "Tiny", params))
    assert checkpoint.mistral_class == kind
    assert model.architectures == (kind,)


def test_shapes_and_bytes_of_experts_and_latent_attention(tmp_path: Path) -> None:
    model, checkpoint = read(write(tmp_path / "Tiny", SEEING))
    assert (model.layers, model.hidden, model.vocab, model.context) == (3, 64, 100, 8192)
    assert (model.experts, model.experts_per_token, model.shared_experts, model.dense_layers) == (4, 2, 1, 1)
    (attention,) = model.attention
    assert attention.kind == "latent"
    assert (checkpoint.scheme, checkpoint.method, checkpoint.scope) == ("fp8_tensor", "fp8", "linear")
    every = {tensor.name: tensor for tensor in tensors(SEEING)}
    table = checkpoint.tensors
    assert table is not None and table.total == sum(tensor.bytes for tensor in every.values())
    assert table.vision == sum(tensor.bytes for name, tensor in every.items() if name.startswith(("vision", "pre_mm")))
    last = {name: tensor.bytes for name, tensor in every.items() if name.startswith("layers.2.")}
    for part, modules in {
        "experts": (".experts.",),
        "shared_experts": (".shared_experts.",),
        "router": (".gate.",),
        "replicated": (".wq_a.", ".wkv_a_with_mqa."),
        "attention": (".wq_b.", ".wkv_b.", ".wo."),
    }.items():
        counted = sum(size for name, size in last.items() if any(module in name for module in modules))
        assert getattr(table.by_layer[2], part) == counted, part
    text = (name for name in every if name.endswith(".weight") and not name.startswith(("vision", "pre_mm")))
    assert model.parameters == sum(every[name].elements for name in text), "scales do not count as weights"


def test_windows_that_come_again_every_few_layers(tmp_path: Path) -> None:
    params = {**DENSE, "n_layers": 4, "sliding_window": [None, 128]}
    model, _ = read(write(tmp_path / "Tiny", params))
    assert [(str(each.kind), each.layers) for each in model.attention] == [
        ("full", (0, 2)),
        ("sliding_window", (1, 3)),
    ]
    (all_layers,) = read(write(tmp_path / "All", {**DENSE, "sliding_window": 64}))[0].attention
    assert all_layers.kind == "sliding_window"


@pytest.mark.parametrize(
    ("said", "scheme"),
    [
        ({"quantization": {"qformat_weight": "fp8_e4m3", "qscheme_act": "NO_SCALES"}}, "fp8_tensor"),
        ({"quantization": {"quant_method": "compressed_tensors", "config_groups": "..."}}, "fp8_channel"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": "..."}}, "fp8_channel"),
        ({}, "bf16"),
    ],
)
def test_how_weights_are_stored(tmp_path: Path, said: dict[str, dict[str, Any]], scheme: str) -> None:
    groups = {"g": {"weights": {"type": "float", "num_bits": 8, "strategy": "channel"}, "targets": ["Linear"]}}
    for table in said.values():
        if "config_groups" in table:
            table["config_groups"] = groups
    assert read(write(tmp_path / "Tiny", {**DENSE, **said}))[1].scheme == scheme


def test_transformers_format_is_read_where_both_are_there(tmp_path: Path) -> None:
    folder = with_both(tmp_path / "Both", DENSE)
    assert read(folder)[1].mistral_class == ""
    assert read(folder, mistral=True)[1].mistral_class == "MistralForCausalLM"
    (folder / "params.json").write_text("{")
    assert read(folder)[1].mistral_class == ""


def test_what_engines_load_from_params_alone_is_read_from_them_where_both_are_there(tmp_path: Path) -> None:
    folder = with_both(tmp_path / "Both", SEEING)
    model, checkpoint = read(folder)
    assert (checkpoint.mistral_class, model.architectures) == ("PixtralForConditionalGeneration", ("LlamaForCausalLM",))
    assert checkpoint.bytes == (folder / "consolidated.safetensors").stat().st_size
    assert read(folder, mistral=False)[1].mistral_class == ""


def test_a_longest_position_that_is_left_out(tmp_path: Path) -> None:
    params = {key: value for key, value in DENSE.items() if key != "max_position_embeddings"}
    assert read(write(tmp_path / "Alone", params))[0].context == 128_000
    beside = write(tmp_path / "Beside", params, config__json=b'{"max_position_embeddings": 32768}')
    assert read(beside)[0].context == 32_768


@pytest.mark.parametrize("named", ["null", "[]", '"Mine"', "[5]", "{}"])
def test_a_config_json_beside_that_names_no_class(tmp_path: Path, named: str) -> None:
    folder = write(tmp_path / "Tiny", DENSE, config__json=f'{{"architectures": {named}}}'.encode())
    assert read(folder)[0].architectures == ("MistralForCausalLM",)


def test_a_tokenizer_with_its_own_template_needs_no_other(tmp_path: Path) -> None:
    folder = write(tmp_path / "Tiny", DENSE, tokenizer_config__json=b"{}")
    assert read(folder)[1].notes == ()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dim": None}, "dim: missing"),
        ({"n_layers": "3"}, "n_layers: must be "),
        ({"n_kv_heads": 0}, "n_kv_heads: must be "),
        ({"moe": [4]}, "moe: must be a table, not [4]"),
        ({"moe": {**EXPERTS, "num_experts": None}}, "moe: num_experts: missing"),
        ({"moe": {**EXPERTS, "num_shared_experts": 0}}, "moe: experts without shared ones, which no engine loads"),
        ({"moe": {**EXPERTS, "route_every_n": 2}}, "moe: route_every_n: must be 1, not 2"),
        ({"llama_4_scaling": None}, "llama_4_scaling: original_max_position_embeddings is missing"),
        ({"quantization": {"qformat_weight": "int8"}}, "quantization: must be fp8_e4m3 or compressed-tensors, not "),
        ({"sliding_window": [64, 128, None]}, "sliding_window: must be one size, for some of 3 layers, not "),
        ({"sliding_window": []}, "sliding_window: must be one size"),
        ({"sliding_window": [[64], None, None]}, "sliding_window: must be one size"),
        ({"sliding_window": [True, True, True]}, "sliding_window: must be one size"),
        (
            {"vision_encoder": VISION, "multimodal": {"whisper_model_args": {"encoder_args": {"dim": 8}}}},
            "multimodal: a model with an encoder for images and one for sound",
        ),
    ],
)
def test_a_params_json_that_cannot_be_right(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    folder = write(tmp_path / "Tiny", LATENT)
    (folder / "params.json").write_text(json.dumps({**LATENT, **changed}))
    with pytest.raises(InputError) as raised:
        read(folder)
    assert raised.value.message.startswith(f"{folder}: params.json: {says}")
    assert raised.value.hint == HINT


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_params_json_that_is_none(tmp_path: Path, content: bytes) -> None:
    folder = write(tmp_path / "Tiny", DENSE, params__json=content)
    with pytest.raises(InputError) as raised:
        read(folder)
    assert raised.value.message.startswith(f"{folder}: params.json: ")
    assert raised.value.hint == HINT


@pytest.mark.parametrize(
    ("params", "kind"), [(LATENT, "EagleMistralLarge3ForCausalLM"), (DENSE, "EagleMistralForCausalLM")]
)
def test_an_eagle_head_needs_neither_tokenizer_nor_embeddings(
    tmp_path: Path, params: dict[str, Any], kind: str
) -> None:
    folder = write(tmp_path / "Head", {key: value for key, value in params.items() if key != "moe"})
    (folder / "tekken.json").unlink()
    own = [tensor for tensor in tensors(params) if tensor.name.startswith("layers.")]
    write_safetensors(
        folder / "consolidated.safetensors", [*own, Tensor("eagle_linear.weight", "BF16", (64, 128), 16_384)]
    )
    model, checkpoint = read(folder)
    assert (model.architectures, checkpoint.mistral_class) == ((kind,), kind)
    assert Draft("eagle", 3, model, checkpoint).head == "eagle"


def test_files_that_are_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "Tiny", DENSE)
    (folder / "tekken.json").unlink()
    with pytest.raises(InputError, match="without its tokenizer"):
        read(folder)
    (folder / "tokenizer.model.v3").write_bytes(b"")
    assert read(folder)[1].mistral_class == "MistralForCausalLM"
    (folder / "params.json").unlink()
    with pytest.raises(InputError, match=r"without a params\.json"):
        read(folder)
