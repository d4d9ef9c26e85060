"""The feed-forward parts of a model as its config.json says them: experts, shared experts, layers without experts."""

from __future__ import annotations

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.mamba import kinds

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token", "moe_topk")


def mixture(config: Config) -> dict[str, int]:
    """The fields of a model: experts, experts_per_token, expert_intermediate, shared_experts, dense_layers,
    intermediate. Those that are 0 are left out.
    """
    experts = config.number(*EXPERTS, default=0, least=0)
    dense = config.number("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", default=0, least=0)
    if not experts:
        return {"intermediate": dense} if dense else {}
    width = config.number("moe_intermediate_size", "expert_ffn_hidden_size", default=0, least=0)
    width = width or config.number("intermediate_size")
    without = _layers_without_experts(config)
    found = {
        "experts": experts,
        "experts_per_token": config.number(*PER_TOKEN, most=experts),
        "expert_intermediate": width,
        "shared_experts": _shared(config, width),
        "dense_layers": without,
        "intermediate": dense if without or config.flag("enable_moe_block") else 0,
    }
    return {key: value for key, value in found.items() if value}


def _shared(config: Config, width: int) -> int:
    """How many experts' width every token goes through."""
    if config.text("model_type").startswith("llama4"):
        return 1
    total = config.number(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        default=0,
        least=0,
    )
    if total:
        return max(1, round(total / width))
    return config.number("n_shared_experts", "num_shared_experts", default=0, least=0)


def _layers_without_experts(config: Config) -> int:
    layers = config.layers
    if config.has("hybrid_override_pattern", "layers_block_type"):
        return sum(kind != "moe" for kind in kinds(config))
    if config.has("mlp_layer_types"):
        return sum(kind == "dense" for kind in config.each_layer("mlp_layer_types", str)[:layers])
    if isinstance(config.data.get("moe_layer_freq"), list):
        return sum(not value for value in config.each_layer("moe_layer_freq", int)[:layers])
    if config.has("expert_layer_period"):
        period, offset = config.number("expert_layer_period"), config.number("expert_layer_offset", least=0)
        return sum(number % period != offset for number in range(layers))
    if config.has("interleave_moe_layer_step"):
        step = config.number("interleave_moe_layer_step")
        return sum((number + 1) % step != 0 for number in range(layers))
    listed = config.data.get("mlp_only_layers")
    only = {number for number in listed if type(number) is int} if isinstance(listed, list) else set()
    step = config.number("decoder_sparse_step", default=1)
    first = config.number("first_k_dense_replace", default=0, least=0, most=layers)
    return sum(number < first or number in only or (number + 1) % step != 0 for number in range(layers))
