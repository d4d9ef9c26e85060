"""State space layers beside attention: Nemotron-H (a pattern of letters, or a list), Granite 4, Jamba (periods)."""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import Config
from rigup.checkpoints.layers.grouped_heads import heads
from rigup.checkpoints.layers.layer import Layer, state_bits, unknown_kind

MOST_OF_A_MODULE = 16
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def read(config: Config) -> list[Layer] | None:
    """Every layer, where the model has state space layers."""
    if config.has("attn_layer_period"):
        return _jamba(config)
    if not config.has("hybrid_override_pattern", "layers_block_type", "mamba_d_state", "mamba_n_heads"):
        return None
    return [_layer(config, kind, number) for number, kind in enumerate(kinds(config))]


def kinds(config: Config) -> list[str]:
    """What each layer is: mamba, attention, mlp or moe."""
    layers = config.layers
    if config.has("hybrid_override_pattern"):
        return [LETTERS.get(letter, letter) for letter in config.each_layer("hybrid_override_pattern", str)[:layers]]
    key = "layers_block_type" if config.has("layers_block_type") else "layer_types"
    if not config.has(key):
        raise config.wrong(key, "missing; rigup cannot tell which layers keep a state")
    return [kind.removesuffix("_attention") for kind in config.each_layer(key, str)[:layers]]


def draft(config: Config) -> list[Layer]:
    """A built-in draft module of Nemotron-H: the layers that it names, attention and experts where it names none.

    Sources: nvidia's configurations of Nemotron 3; vLLM 0.33.0 nemotron_h_mtp.py.
    """
    if config.has("mtp_hybrid_override_pattern"):
        named = [LETTERS.get(letter, letter) for letter in config.text("mtp_hybrid_override_pattern")]
    else:
        kinds = config.data.get("mtp_layers_block_type") or ["attention", "moe"]
        if not isinstance(kinds, list):
            raise config.wrong("mtp_layers_block_type", "must be a list")
        named = [str(kind) for kind in kinds]
    return [_layer(config, kind, config.layers - 1) for kind in named[:MOST_OF_A_MODULE]]


def _attention(config: Config, number: int) -> Layer:
    """Without positions unless it asks for them: the states beside it know the order of tokens."""
    positions = {} if config.text("position_embedding_type") == "rope" else {"rope_dim": 0}
    return "full", {**heads(config, number), **positions}


def _layer(config: Config, kind: str, number: int) -> Layer:
    if kind in ("attention", "full"):
        return _attention(config, number)
    if kind in ("mlp", "moe"):
        return "none", {}
    if kind == "mamba" and config.has("mamba_d_inner"):
        return "mamba", _mamba(config, config.number("mamba_d_inner"))
    if kind in ("mamba", "mamba2"):
        return "mamba2", _mamba2(config)
    raise unknown_kind(config, kind, "layers_block_type")


def _mamba2(config: Config) -> dict[str, Any]:
    return {
        "heads": config.number("mamba_num_heads", "mamba_n_heads"),
        "head_dim": config.number("mamba_head_dim", "mamba_d_head"),
        "state": config.number("ssm_state_size", "mamba_d_state"),
        "groups": config.number("n_groups", "mamba_n_groups"),
        "convolution": config.number("conv_kernel", "mamba_d_conv"),
        "state_bits": state_bits(config, "mamba_ssm_cache_dtype"),
    }


def _mamba(config: Config, channels: int) -> dict[str, Any]:
    rank = config.data.get("mamba_dt_rank")
    step = -(-config.hidden // 16) if rank in (None, "auto") else config.number("mamba_dt_rank")
    return {
        "channels": channels,
        "state": config.number("mamba_d_state"),
        "step_rank": step,
        "convolution": config.number("mamba_d_conv"),
    }


def _jamba(config: Config) -> list[Layer]:
    mamba: Layer = ("mamba", _mamba(config, config.hidden * config.number("mamba_expand")))
    period, offset = config.number("attn_layer_period"), config.number("attn_layer_offset", least=0)
    return [_attention(config, number) if number % period == offset else mamba for number in range(config.layers)]
