"""Qwen3-Next, Qwen3.5 and later: gated delta nets, and full attention on every fourth layer."""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.grouped_heads import FULL, heads
from rigup.checkpoints.layers.layer import Layer, state_bits, unknown_kind

LINEAR = "linear_attention"


def read(config: Config) -> list[Layer] | None:
    """Every layer, where the model has such nets."""
    if not config.has("linear_num_value_heads"):
        return None
    layers = config.layers
    if config.has("layer_types"):
        kinds = list(config.each_layer("layer_types", str)[:layers])
    else:
        every = config.number("full_attention_interval", default=4)
        kinds = [FULL if (number + 1) % every == 0 else LINEAR for number in range(layers)]
    if unknown := [kind for kind in kinds if kind not in (FULL, LINEAR)]:
        raise unknown_kind(config, unknown[0])
    linear: Layer = (
        "gated_delta",
        {
            "key_heads": config.number("linear_num_key_heads"),
            "value_heads": config.number("linear_num_value_heads"),
            "key_dim": config.number("linear_key_head_dim"),
            "value_dim": config.number("linear_value_head_dim"),
            "convolution": config.number("linear_conv_kernel_dim", default=4),
            "state_bits": state_bits(config, "mamba_ssm_dtype"),
        },
    )
    return [linear if kind == LINEAR else ("full", heads(config, n)) for n, kind in enumerate(kinds)]


def draft(config: Config) -> list[Layer]:
    """A built-in draft layer: full attention in vLLM 0.33.0 (qwen3_5_mtp.py) and SGLang 0.5.23 (qwen3_5_mtp.py)."""
    return [("full", heads(config, config.layers - 1))]
