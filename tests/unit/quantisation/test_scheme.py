"""Quantisation schemes: what each makes of a matrix, how many weights are in what is stored, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rigup.checkpoints.safetensors_header import DTYPE_BITS
from rigup.errors import InputError
from rigup.quantisation import read_scheme
from rigup.quantisation.scheme import Scheme
from tests.hostile import mangled, read_safely

GROUP = {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": True}
NVFP4 = {"type": "float", "num_bits": 4, "strategy": "tensor_group", "group_size": 16}
MXFP4 = {"type": "float", "num_bits": 4, "strategy": "group", "group_size": 32}
FP8_ROWS = {"type": "float", "num_bits": 8, "strategy": "channel"}


def compressed(weights: dict[str, Any], inputs: dict[str, Any] | None = None) -> dict[str, Any]:
    group = {"weights": weights, "targets": ["Linear"], "input_activations": inputs}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["re:.*self_attn.*"]}


# by configuration: the catalogue's name, what engines call it, and bytes of a matrix of 256 rows and 1,024 columns
SCHEMES: list[tuple[dict[str, Any] | None, str, str, int]] = [
    (None, "bf16", "", 524_288),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block128", "fp8", 262_144 + 16 * 4),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_tensor", "fp8", 262_144 + 8),
    ({"quant_algo": "NVFP4"}, "nvfp4", "modelopt", 131_072 + 16_384 + 8),
    ({"quant_algo": "W4A16_NVFP4"}, "nvfp4_a16", "modelopt", 131_072 + 16_384 + 4),
    ({"quant_algo": "NVFP4", "config_groups": {"group_0": {"weights": {}}}}, "nvfp4_a16", "modelopt", 147_456 + 4),
    ({"quant_algo": "NVFP4", "config_groups": {"one": {"input_activations": {}}}}, "nvfp4", "modelopt", 147_456 + 8),
    ({"quant_algo": "FP8"}, "fp8_tensor", "modelopt", 262_144 + 8),
    ({"quant_algo": "MXFP8"}, "mxfp8", "modelopt", 262_144 + 8_192),
    ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, "mxfp8", "mxfp8", 262_144 + 8_192),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4_g128", "gptq", 131_072 + 1024 + 4096 + 4096),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, "int4_g128", "awq", 131_072 + 1024 + 4096),
    (
        {"quant_method": "auto-round", "bits": 2, "group_size": 64},
        "int2_g64",
        "auto-round",
        65_536 + 1024 + 8192 + 4096,
    ),
    (compressed(GROUP), "int4_g32", "compressed-tensors", 131_072 + 16_384 + 16),
    (compressed(NVFP4), "nvfp4_a16", "compressed-tensors", 131_072 + 16_384 + 4),
    (compressed(NVFP4, {"dynamic": "local"}), "nvfp4", "compressed-tensors", 131_072 + 16_384 + 8),
    (compressed(MXFP4), "mxfp4", "compressed-tensors", 131_072 + 8_192),
    (compressed(FP8_ROWS), "fp8_channel", "compressed-tensors", 262_144 + 512),
]


def stored_bytes(scheme: Scheme, module: str, rows: int, columns: int) -> int:
    parts = scheme.stored(module, rows, columns)
    return sum(math.prod(part.shape) * DTYPE_BITS[part.dtype] // 8 for part in parts)


@pytest.mark.parametrize(("config", "name", "engine", "size"), SCHEMES)
def test_what_a_matrix_is_stored_as(config: dict[str, Any] | None, name: str, engine: str, size: int) -> None:
    scheme = read_scheme(config, "config.json")
    assert (scheme.catalogue, scheme.engine_name) == (name, engine)
    module = "model.layers.3.mlp.down_proj"
    assert stored_bytes(scheme, module, 256, 1024) == size
    parts = scheme.stored(module, 256, 1024)
    assert sum(scheme.weights(module + p.suffix, p.dtype, math.prod(p.shape)) for p in parts) == 256 * 1024


def test_gpt_oss_keeps_all_but_experts_whole() -> None:
    scheme = read_scheme({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "config.json")
    assert stored_bytes(scheme, "model.layers.0.self_attn.q_proj", 64, 64) == 2 * 64 * 64
    assert stored_bytes(scheme, "model.layers.0.mlp.experts.gate_up_proj", 64, 64) == 64 * 64 // 2 + 64 * 2


def test_experts_in_fp4_are_stored_otherwise_than_the_rest() -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert read_scheme(block, "x").of_experts is None
    scheme = read_scheme({**block, "expert_dtype": "fp4"}, "x")
    assert (scheme.catalogue, scheme.of_experts) == ("fp8_block128", "mxfp4")


@pytest.mark.parametrize(
    ("said", "module", "excluded"),
    [
        (["lm_head"], "lm_head", True),
        (["gate"], "model.layers.0.mlp.gate", True),
        (["gate"], "model.layers.0.mlp.gate_proj", False),
        (["model.layers.1"], "model.layers.11.mlp.up_proj", False),
        (["model.layers.1"], "model.layers.1.mlp.up_proj", True),
    ],
)
def test_exclusions_of_fp8(said: list[str], module: str, excluded: bool) -> None:
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": said}
    assert (len(read_scheme(config, "x").stored(module, 128, 128)) == 1) == excluded
    config = {"quant_method": "mxfp8", "ignored_layers": said}
    assert (len(read_scheme(config, "x").stored(module, 128, 128)) == 1) == excluded


@pytest.mark.parametrize(
    ("said", "module", "excluded"),
    [
        (["model.layers.0*"], "model.layers.0.mlp.up_proj", True),
        (["model.layers.1.*"], "model.layers.11.mlp.up_proj", False),
        (["*.mlp.shared_expert.*"], "model.layers.4.mlp.shared_expert.up_proj", True),
    ],
)
def test_exclusions_of_modelopt(said: list[str], module: str, excluded: bool) -> None:
    config = {"quant_algo": "NVFP4", "exclude_modules": said}
    assert (len(read_scheme(config, "x").stored(module, 128, 128)) == 1) == excluded


def test_a_mix_goes_by_module() -> None:
    layers = {"model.layers.0.attn": {"quant_algo": "FP8"}, "model.layers.0.mlp.experts": {"quant_algo": "NVFP4"}}
    scheme = read_scheme({"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}, "x")
    assert scheme.catalogue == "nvfp4"
    assert stored_bytes(scheme, "model.layers.0.attn", 64, 64) == 64 * 64 + 8
    assert stored_bytes(scheme, "model.layers.0.mlp.experts.7.up_proj", 64, 64) == 64 * 64 // 2 + 256 + 8
    assert stored_bytes(scheme, "model.layers.0.mlp.gate", 64, 64) == 2 * 64 * 64


@pytest.mark.parametrize(("first", "second", "name"), [("FP8", "MXFP8", "fp8_tensor"), ("MXFP8", "FP8", "mxfp8")])
def test_a_mix_of_halves_is_named_by_its_first(first: str, second: str, name: str) -> None:
    layers = {"model.layers.0.mlp": {"quant_algo": first}, "model.layers.1.mlp": {"quant_algo": second}}
    config = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert read_scheme(config, "x").catalogue == name


REFUSED = {
    "bits": ({"quant_method": "gptq", "bits": 5, "group_size": 128}, "bits: must be one of 2, 3, 4, 8"),
    "group": (
        {"quant_method": "awq", "bits": 4, "group_size": 7},
        "group_size: must be one of -1, 16, 32, 64, 128, 256, 512, 1024",
    ),
    "method": ({"quant_method": "bitsandbytes"}, 'unknown quantisation "bitsandbytes"'),
    "nothing": ({"bits": 4}, "unknown quantisation None"),
    "blocks": (
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        "weight_block_size: must be two sizes of 32, 64, 128 or 256",
    ),
    "mix": (
        {"quant_algo": "MIXED_PRECISION", "quantized_layers": 7},
        "quantized_layers: must be a table of modules",
    ),
    "list": (
        {"quant_method": "fp8", "modules_to_not_convert": [1]},
        "the list of modules that are not quantised is not a list of names",
    ),
    "slow pattern": (
        {**compressed(GROUP), "ignore": ["re:(a+)+$"]},
        "a pattern of modules that are not quantised has a repetition within a repetition",
    ),
    "many stars": (
        {"quant_algo": "NVFP4", "exclude_modules": ["*a" * 20]},
        "a pattern of modules that are not quantised has too many wildcards",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_right_is_one_message(kind: str) -> None:
    config, message = REFUSED[kind]
    with pytest.raises(InputError) as error:
        read_scheme(config, "org/model: quantization_config")
    assert error.value.message == f"org/model: quantization_config: {message}"


@given(st.sampled_from([config for config, *_ in SCHEMES if config]).flatmap(mangled), st.text(max_size=40))
def test_any_configuration_gives_a_scheme_or_one_error(config: Any, module: str) -> None:
    def read() -> Any:
        scheme = read_scheme(config if isinstance(config, dict) else {"quant_method": config}, "org/model")
        return scheme.catalogue, scheme.stored(module, 256, 256)

    read_safely(read, "org/model: ")
