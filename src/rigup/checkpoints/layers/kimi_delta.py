"""Linear attention (KDA) beside latent layers: Kimi Linear and Kimi K3, whose linear_attn_config lists them from 1
on, and GLM 5.3 Flash, whose layer_types name them.

Sources: transformers 5.23.0 configuration_kimi_linear.py and configuration_glm5_next.py; SGLang 0.5.23
configs/glm5_next.py, which takes the sizes from linear_attn_config, too.
"""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.latent import draft as latent_draft
from rigup.checkpoints.layers.latent import latent, latent_layers
from rigup.checkpoints.layers.layer import Layer, numbers, state_bits, unknown_kind

LINEAR = "linear_attention"
LATENT = ("full_attention", "indexed_attention", "deepseek_sparse_attention")
LISTS = ("full_attn_layers", "kda_layers")


def read(config: Config) -> list[Layer] | None:
    """Every layer, where some are linear and the others latent."""
    if config.table("linear_attn_config").has(*LISTS):
        return _listed(config)
    if config.has("linear_attn_config", "linear_num_heads") and config.has("kv_lora_rank"):
        return _typed(config)
    return None


def draft(config: Config) -> list[Layer]:
    """A built-in draft layer: never a linear one (vLLM 0.32.0 models/glm5next/common/model.py)."""
    return latent_draft(config)


def _listed(config: Config) -> list[Layer]:
    linear, layers = config.table("linear_attn_config"), config.layers
    latent_numbers, linear_numbers = (numbers(linear, key, 1, layers) for key in LISTS)
    if sorted((*latent_numbers, *linear_numbers)) != list(range(1, layers + 1)):
        raise linear.wrong("kda_layers", "together with full_attn_layers it must name each layer once")
    gated = {"gated": True} if config.flag("mla_use_output_gate") else {}
    full: Layer = ("latent", {**latent(config), **gated})
    delta = _delta(config, linear)
    return [full if number in latent_numbers else delta for number in range(1, layers + 1)]


def _typed(config: Config) -> list[Layer]:
    kinds = config.each_layer("layer_types", str)[: config.layers]
    if unknown := [kind for kind in kinds if kind not in (LINEAR, *LATENT)]:
        raise unknown_kind(config, unknown[0])
    flat = {"num_heads": "linear_num_heads", "head_dim": "linear_head_dim"}
    flat["short_conv_kernel_size"] = "linear_conv_kernel_dim"
    said = {key: config.data.get(name) for key, name in flat.items()}
    linear = config.table("linear_attn_config")
    delta = _delta(config, Config({**said, **linear.data}, linear.where if linear.data else config.where))
    return [delta if kind == LINEAR else full for kind, full in zip(kinds, latent_layers(config), strict=True)]


def _delta(config: Config, linear: Config) -> Layer:
    return (
        "kimi_delta",
        {
            "heads": linear.number("num_heads"),
            "head_dim": linear.number("head_dim"),
            "convolution": linear.number("short_conv_kernel_size"),
            "full_rank_gate": linear.flag("use_full_rank_gate"),
            "state_bits": state_bits(config, "mamba_ssm_dtype", default=32),
        },
    )
