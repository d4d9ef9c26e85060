"""Kimi Linear and Kimi K3: linear attention, and a latent layer now and then; linear_attn_config counts from 1."""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.latent import latent
from rigup.checkpoints.layers.layer import Layer, state_bits


def read(config: Config) -> list[Layer] | None:
    """Every layer, where there is such a list."""
    if not config.has("linear_attn_config"):
        return None
    linear, layers = config.table("linear_attn_config"), config.layers
    listed: dict[str, Any] = {key: linear.data.get(key) for key in ("full_attn_layers", "kda_layers")}
    for key, numbers in listed.items():
        if not isinstance(numbers, list) or not all(type(n) is int and 0 < n <= layers for n in numbers):
            raise linear.wrong(key, f"must be a list of layers from 1 to {layers}")
    if sorted((*listed["full_attn_layers"], *listed["kda_layers"])) != list(range(1, layers + 1)):
        raise linear.wrong("kda_layers", "together with full_attn_layers it must name each layer once")
    gated = {"gated": True} if config.flag("mla_use_output_gate") else {}
    full: Layer = ("latent", {**latent(config), **gated})
    delta: Layer = (
        "kimi_delta",
        {
            "heads": linear.number("num_heads"),
            "head_dim": linear.number("head_dim"),
            "convolution": linear.number("short_conv_kernel_size"),
            "full_rank_gate": linear.flag("use_full_rank_gate"),
            "state_bits": state_bits(config, "mamba_ssm_dtype"),
        },
    )
    return [full if number in listed["full_attn_layers"] else delta for number in range(1, layers + 1)]
