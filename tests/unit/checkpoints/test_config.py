"""Configurations that lie: a model or one error, in bounded time and memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.checkpoints.config import Config, read_config
from rigup.checkpoints.layers import read_draft_layers, read_layers
from rigup.checkpoints.mixture import mixture
from rigup.checkpoints.places import place_of
from rigup.errors import InputError
from tests.hostile import mangled, read_safely
from tests.published.collect import read_configs

CONFIGS = {repo: entry["config"] for repo, entry in read_configs().items() if "config" in entry}
KINDS = ["openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V4-Flash", "moonshotai/Kimi-K3", "ai21labs/AI21-Jamba-1.5-Mini"]
KINDS += [
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
    "MiniMaxAI/MiniMax-M3",
    "Qwen/Qwen3.5-27B",
    "google/gemma-4-26B-A4B",
]


@given(st.sampled_from(KINDS).flatmap(lambda repo: mangled(CONFIGS[repo])))
def test_any_configuration_gives_layers_or_one_error(data: Any) -> None:
    def read() -> Any:
        content = json.dumps(data).encode(errors="surrogatepass")
        config = read_config(content, "org/model: config.json").text_model
        return read_layers(config), mixture(config)

    found = read_safely(read, "org/model: config.json")
    if found is not None:
        layers, _ = found
        numbers = sorted(number for entry in layers for number in entry.layers)
        assert numbers == list(range(len(numbers))) and len(numbers) <= 1024


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{",
        b"[" * 10**6,
        b'{"a":' * 10**5,
        b"[" + b"0," * 10**6 + b"0]",
        b"\xff",
        b'{"num_hidden_layers": 1e999}',
    ],
)
def test_bytes_that_are_not_a_configuration_are_one_error(content: bytes) -> None:
    def read() -> Any:
        return read_config(content, "org/model: config.json").layers

    assert read_safely(read, "org/model: config.json") is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"num_hidden_layers": True}, "num_hidden_layers: must be a whole number from 1 to 1,024, not True"),
        ({"num_hidden_layers": "12"}, 'num_hidden_layers: must be a whole number from 1 to 1,024, not "12"'),
        ({}, "num_hidden_layers: missing"),
        ({"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "layer_types: 1 values for 2 layers"),
        ({"layers_block_type": 5}, "num_hidden_layers: missing"),
        ({"num_hidden_layers": 2, "kv_lora_rank": 4, "layer_types": 5}, "qk_rope_head_dim: missing"),
    ],
)
def test_messages_name_the_key(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        read_layers(Config({"hidden_size": 8, "num_attention_heads": 2, **data}, "config.json"))
    assert error.value.message == f"config.json: {message}"


def test_draft_layers_without_a_list_are_one_error() -> None:
    data = {"num_hidden_layers": 1, "num_nextn_predict_layers": 1, "hybrid_override_pattern": "-"}
    with pytest.raises(InputError) as error:
        read_draft_layers(Config({**data, "mtp_layers_block_type": 7}, "config.json"))
    assert error.value.message == "config.json: mtp_layers_block_type: must be a list"


@pytest.mark.parametrize(
    ("name", "part", "layer"),
    [
        ("model.embed_tokens.weight", "embedding", None),
        ("lm_head.weight", "head", None),
        ("model.norm.weight", "norms", None),
        ("model.layers.7.self_attn.q_proj.weight_scale_inv", "attention", 7),
        ("model.layers.7.self_attn.k_proj.bias", "key_value", 7),
        ("model.layers.7.self_attn.k_norm.weight", "norms", 7),
        ("model.layers.7.self_attn.kv_a_proj_with_mqa.weight", "replicated", 7),
        ("model.layers.7.self_attn.indexer.wq_b.weight", "replicated", 7),
        ("model.language_model.layers.7.linear_attn.in_proj_qkv.weight", "attention", 7),
        ("model.layers.7.mlp.gate.e_score_correction_bias", "router", 7),
        ("model.layers.7.mlp.gate_proj.weight", "dense", 7),
        ("model.layers.7.block_sparse_moe.experts.3.w1.weight", "experts", 7),
        ("model.layers.7.mlp.shared_experts.up_proj.weight", "shared_experts", 7),
        ("backbone.layers.7.mixer.in_proj.weight", "attention", 7),
        ("backbone.layers.7.mixer.experts.3.up_proj.weight", "experts", 7),
        ("backbone.layers.7.mixer.gate.weight", "router", 7),
        ("model.layers.60.mlp.experts.0.up_proj.weight", "mtp", None),
        ("mtp.layers.0.mlp.up_proj.weight", "mtp", None),
        ("midlayer.self_attn.q_proj.weight", "attention", 0),
        ("midlayer.mlp.up_proj.weight", "dense", 0),
        ("model.visual.blocks.3.attn.qkv.weight", "vision", None),
        ("layers.7.attn.wq_a.weight", "replicated", 7),
        ("layers.7.ffn.experts.3.w2.scale", "experts", 7),
        ("blk.7.attn_k.weight", "key_value", 7),
        ("blk.7.ffn_gate_inp.weight", "router", 7),
        ("blk.7.ffn_down_exps.weight", "experts", 7),
        ("blk.7.ffn_up_shexp.weight", "shared_experts", 7),
        ("blk.7.ssm_in.weight", "attention", 7),
        ("blk.7.attn_kv_a_mqa.weight", "replicated", 7),
        ("token_embd.weight", "embedding", None),
        ("output.weight", "head", None),
        ("output_norm.weight", "norms", None),
    ],
)
def test_places_of_tensors(name: str, part: str, layer: int | None) -> None:
    found = place_of(name, 60)
    assert (found.part, found.layer) == (part, layer)
