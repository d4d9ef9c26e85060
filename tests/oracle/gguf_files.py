"""GGUF files of published models: true metadata, names, shapes and types, and a hole where the weights are.

Names and shapes are those that llama.cpp's loader asks for, types those that llama-quantize gives, both by the judge's
program (judge/llama_cpp.cpp). Metadata is what llama.cpp's converter writes of a config.json (conversion/ of b11434),
as far as sizes depend on it.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.tiny.checkpoint import Tensor, bytes_of, gguf_head

Text = dict[str, Any]
Keys = dict[str, Any]
# llama.cpp's include/llama.h: enum llama_ftype.
MIXES = {"BF16": 32, "Q8_0": 7, "Q4_K_M": 15}
# Matrices that the converter keeps exact.
EXACT = re.compile(r"ffn_gate_inp|ssm_conv1d|hc_\w*fn\.|indexer\.(proj|q_proj|k_proj)\.")
# What the loader asks for and sizes do not depend on, where a stored configuration lacks it.
EPSILON = 1e-5
# What the loader takes if a file has it, which those of published models do not: biases, scales of NVFP4, tied heads.
ABSENT = {
    "": r"attn_(q|k|v|qkv|output)\.bias$|\.(scale|input_scale)$|rope_freqs|ffn_(up|down|gate)\.bias$|_exps\.bias$",
    "gpt-oss": r"\.(scale|input_scale)$|rope_freqs",
    "gemma4": r"attn_(q|k|v|qkv|output)\.bias$|(?<!gate_inp)(?<!down_exps)\.(scale|input_scale)$|_exps\.bias$",
}
ONE_MATRIX = ("qwen35", "qwen35moe")
"""Architectures whose files have queries, keys and values in one."""
EITHER = ("mimo2", "step35", "hy_v3")
"""Architectures of which the loader takes both a feed-forward network and experts on each layer."""
DENSE, ROUTED = r"ffn_(gate|up|down)\.weight", r"(ffn_gate_inp|exp_probs_b|\w+_exps|\w+_shexp)\b"
QUANTISED = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*type = +(\w+),.*?(?:\((\w+)\))?$")


def heads(text: Text) -> int:
    """The width of one."""
    width: int = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    return width


def _plain(text: Text) -> Keys:
    return {"attention.key_length": heads(text), "attention.value_length": heads(text)}


def _llama(text: Text) -> Keys:
    return {"rope.dimension_count": heads(text)}


def dense_layers(text: Text) -> list[int]:
    """Those without experts."""
    if "mlp_layer_types" in text:
        return [number for number, kind in enumerate(text["mlp_layer_types"]) if kind == "dense"]
    if isinstance(text.get("moe_layer_freq"), list):
        return [number for number, routed in enumerate(text["moe_layer_freq"]) if not routed]
    return list(range(text["first_k_dense_replace"]))


def _routed(text: Text) -> Keys:
    return {
        "leading_dense_block_count": len(dense_layers(text)),
        "expert_shared_count": text.get("n_shared_experts") or text.get("num_shared_experts") or 0,
        "expert_weights_scale": float(text.get("routed_scaling_factor") or 1.0),
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }


def _minimax(text: Text) -> Keys:
    routed = {"expert_feed_forward_length": text["intermediate_size"], "expert_gating_func": 2}
    return {**_plain(text), "rope.dimension_count": text["rotary_dim"], **routed}


def _minimax_m3(text: Text) -> Keys:
    sparse = text["sparse_attention_config"]
    return {
        **_minimax(text),
        **_routed(text),
        "attention.indexer.head_count": sparse["sparse_num_index_heads"],
        "attention.indexer.key_length": sparse["sparse_index_dim"],
        "attention.indexer.top_k": sparse["sparse_topk_blocks"],
        "attention.indexer.block_size": sparse["sparse_block_size"],
        "attention.indexer.local_blocks": sparse["sparse_local_block"],
    }


def _glm4moe(text: Text) -> Keys:
    return {**_plain(text), **_routed(text), "rope.dimension_count": heads(text) // 2}


def _nemotron(text: Text) -> Keys:
    letters = {"M": "mamba", "E": "moe", "*": "attention"}
    kinds = text.get("layers_block_type") or [letters[letter] for letter in text["hybrid_override_pattern"]]
    latent = text.get("moe_latent_size")
    return {
        **_plain(text),
        "block_count": len(kinds),
        "attention.head_count_kv": [text["num_key_value_heads"] if kind == "attention" else 0 for kind in kinds],
        "attention.layer_norm_epsilon": float(text["norm_eps"]),
        "feed_forward_length": [text["moe_intermediate_size"] if kind == "moe" else 0 for kind in kinds],
        "ssm.conv_kernel": text["conv_kernel"],
        "ssm.state_size": text["ssm_state_size"],
        "ssm.group_count": text["n_groups"],
        "ssm.time_step_rank": text["mamba_num_heads"],
        "ssm.inner_size": text["mamba_num_heads"] * text["mamba_head_dim"],
        "expert_shared_feed_forward_length": text["moe_shared_expert_intermediate_size"],
        "expert_shared_count": text["n_shared_experts"],
        "expert_weights_scale": float(text["routed_scaling_factor"]),
        "expert_weights_norm": True,
        **({"moe_latent_size": latent} if latent else {}),
    }


def _mimo(text: Text) -> Keys:
    sliding = text["hybrid_layer_pattern"]
    own, whole = text["swa_num_key_value_heads"], text["num_key_value_heads"]
    return {
        "attention.key_length": text["head_dim"],
        "attention.value_length": text["v_head_dim"],
        "attention.head_count_kv": [own if one else whole for one in sliding],
        "attention.sliding_window": text["sliding_window"],
        "attention.sliding_window_pattern": [bool(one) for one in sliding],
        "rope.dimension_count": int(text["head_dim"] * text["partial_rotary_factor"]),
    }


def _step(text: Text) -> Keys:
    return {
        **_plain(text),
        "attention.sliding_window": text["sliding_window"],
        "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in text["layer_types"]],
        "rope.dimension_count": heads(text),
        "expert_shared_feed_forward_length": text["share_expert_dim"],
    }


def _hy3(text: Text) -> Keys:
    shared = text["moe_intermediate_size"] * text["num_shared_experts"]
    return {**_plain(text), "rope.dimension_count": heads(text), "expert_shared_feed_forward_length": shared}


def _deepseek4(text: Text) -> Keys:
    return {
        **_plain(text),
        "attention.q_lora_rank": text["q_lora_rank"],
        "attention.sliding_window": text["sliding_window"],
        "attention.output_group_count": text["o_groups"],
        "attention.output_lora_rank": text["o_lora_rank"],
        "attention.compress_ratios": text["compress_ratios"],
        "attention.compress_rope_freq_base": float(text["compress_rope_theta"]),
        "rope.dimension_count": text["qk_rope_head_dim"],
        "expert_shared_count": text["n_shared_experts"],
        "expert_weights_scale": float(text["routed_scaling_factor"]),
        "expert_weights_norm": True,
        "expert_gating_func": 4,
        "swiglu_clamp_exp": [float(text["swiglu_limit"])] * text["num_hidden_layers"],
        "hash_layer_count": text["num_hash_layers"],
        "embedding_length_out": text["hidden_size"] * text["hc_mult"],
        **_indexer(text),
        **_streams(text),
    }


def _qwen35(text: Text) -> Keys:
    rope = text["rope_parameters"]
    values = text["linear_num_value_heads"]
    keys = {
        **_plain(text),
        "rope.dimension_count": int(heads(text) * rope["partial_rotary_factor"]),
        "rope.dimension_sections": [*rope["mrope_section"], 0],
        "full_attention_interval": text["full_attention_interval"],
        "ssm.conv_kernel": text["linear_conv_kernel_dim"],
        "ssm.state_size": text["linear_key_head_dim"],
        "ssm.group_count": text["linear_num_key_heads"],
        "ssm.time_step_rank": values,
        "ssm.inner_size": text["linear_value_head_dim"] * values,
    }
    shared = text.get("shared_expert_intermediate_size")
    return {**keys, **({"expert_shared_feed_forward_length": shared} if shared else {})}


def _gpt_oss(text: Text) -> Keys:
    scaled = {"type": "yarn", "factor": 32.0, "original_context_length": 4096}
    return {
        **_plain(text),
        "rope.dimension_count": heads(text),
        "attention.sliding_window": text["sliding_window"],
        "expert_feed_forward_length": text["intermediate_size"],
        **{f"rope.scaling.{name}": value for name, value in scaled.items()},
    }


def _gemma4(text: Text) -> Keys:
    full = [kind == "full_attention" for kind in text["layer_types"]]
    own = text["num_key_value_heads"]
    whole = text.get("num_global_key_value_heads") or own
    return {
        "attention.key_length": text["global_head_dim"],
        "attention.value_length": text["global_head_dim"],
        "attention.key_length_swa": heads(text),
        "attention.value_length_swa": heads(text),
        "attention.head_count_kv": [whole if one else own for one in full],
        "attention.sliding_window": text["sliding_window"],
        "attention.sliding_window_pattern": [not one for one in full],
        "attention.shared_kv_layers": text["num_kv_shared_layers"],
        "embedding_length_per_layer_input": text["hidden_size_per_layer_input"],
        "rope.dimension_count": text["global_head_dim"],
        "rope.dimension_count_swa": heads(text),
        "rope.freq_base_swa": 1e4,
        "final_logit_softcapping": 30.0,
    }


def _latent(text: Text) -> Keys:
    rope = text["qk_rope_head_dim"]
    keys = {
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": text["q_lora_rank"],
        "attention.kv_lora_rank": text["kv_lora_rank"],
        "attention.key_length": text["kv_lora_rank"] + rope,
        "attention.value_length": text["kv_lora_rank"],
        "attention.key_length_mla": text["qk_nope_head_dim"] + rope,
        "attention.value_length_mla": text["v_head_dim"],
        "rope.dimension_count": rope,
        **_routed(text),
    }
    if "index_n_heads" in text:
        keys |= _indexer(text)
    if text.get("indexer_types"):
        keys["attention.indexer.types"] = [kind == "full" for kind in text["indexer_types"]]
    return keys


def _indexer(text: Text) -> Keys:
    return {
        "attention.indexer.head_count": text["index_n_heads"],
        "attention.indexer.key_length": text["index_head_dim"],
        "attention.indexer.top_k": text["index_topk"],
    }


def _streams(text: Text) -> Keys:
    return {
        "hyper_connection.count": text["hc_mult"],
        "hyper_connection.sinkhorn_iterations": text.get("hc_sinkhorn_iters", 0),
        "hyper_connection.epsilon": EPSILON,
    }


def _hy4(text: Text) -> Keys:
    return {**_latent(text), **_streams(text), "hyper_connection.magnitude": 1.0}


def _glm5_next(text: Text) -> Keys:
    return {
        **_latent(text),
        **_streams(text),
        "attention.head_count_kv": [int(kind != "linear_attention") for kind in text["layer_types"]],
        "attention.indexer.kpool": text["index_kpool"],
        "ssm.conv_kernel": text["linear_conv_kernel_dim"],
        "kda.head_dim": text["linear_head_dim"],
        "kda.gate_lower_bound": text["linear_lower_bound"],
    }


def _kimi_k3(text: Text) -> Keys:
    linear = text["linear_attn_config"]
    layers = range(1, text["num_hidden_layers"] + 1)
    return {
        **_latent(text),
        "attention.head_count_kv": [int(layer in linear["full_attn_layers"]) for layer in layers],
        "ssm.conv_kernel": linear["short_conv_kernel_size"],
        "kda.head_dim": linear["head_dim"],
        "kda.gate_lower_bound": linear["gate_lower_bound"],
        "expert_latent_length": text["routed_expert_hidden_size"],
        "activation.situ_beta": text["activation_situ_beta"],
        "activation.situ_linear_beta": text["activation_situ_linear_beta"],
        "attn_res.block_size": text["attn_res_block_size"],
    }


METADATA: dict[str, Callable[[Text], Keys]] = {
    "llama": _llama,
    "qwen3moe": _plain,
    "qwen35": _qwen35,
    "qwen35moe": _qwen35,
    "minimax-m2": _minimax,
    "minimax-m3": _minimax_m3,
    "gpt-oss": _gpt_oss,
    "gemma4": _gemma4,
    "glm4moe": _glm4moe,
    "nemotron_h_moe": _nemotron,
    "mimo2": _mimo,
    "step35": _step,
    "hy_v3": _hy3,
    "hy_v4": _hy4,
    "deepseek2": _latent,
    "deepseek32": _latent,
    "deepseek4": _deepseek4,
    "glm-dsa": _latent,
    "glm5-next": _glm5_next,
    "kimi-k3": _kimi_k3,
    "mistral4": _latent,
}
"""By architecture, what its loader reads beyond what all read."""


def metadata(architecture: str, config: dict[str, Any], context: int) -> Keys:
    """All that a file says of a model but its vocabulary. context: the longest."""
    text = config.get("text_config", config)
    rope = text.get("rope_parameters") or {}
    theta = text.get("rope_theta") or rope.get("rope_theta") or rope.get("full_attention", {}).get("rope_theta") or 1e4
    wide = text.get("dense_intermediate_size") or text.get("intermediate_size")
    used = text.get("num_experts_per_tok") or text.get("num_experts_per_token") or text.get("top_k_experts")
    keys = {
        "vocab_size": text["vocab_size"],
        "context_length": context,
        "embedding_length": text["hidden_size"],
        "block_count": text.get("num_hidden_layers") or len(text["layers_block_type"]),
        "feed_forward_length": wide or text["moe_intermediate_size"],
        "attention.head_count": text["num_attention_heads"],
        "attention.head_count_kv": text["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(text.get("rms_norm_eps") or EPSILON),
        "rope.freq_base": float(theta),
    }
    experts = text.get("num_experts") or text.get("n_routed_experts") or text.get("num_local_experts")
    if experts:
        keys |= {
            "expert_count": experts,
            "expert_used_count": used,
            "expert_feed_forward_length": text.get("moe_intermediate_size") or text["intermediate_size"],
        }
    keys |= METADATA[architecture](text)
    return {
        "general.architecture": architecture,
        "general.quantization_version": 2,
        **{f"{architecture}.{name}": value for name, value in keys.items()},
    }


def _typed(value: Any) -> tuple[list[str], Any]:
    if isinstance(value, list):
        (kind,) = {_typed(one)[0][0] for one in value}
        return ["ARRAY", "INT32" if kind == "UINT32" else kind], value
    kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}
    return [kinds[type(value)]], value


def write(path: Path, keys: Keys, tensors: list[Tensor]) -> None:
    """The file, whose weights take no room."""
    vocab = keys[f"{keys['general.architecture']}.vocab_size"]
    head = gguf_head("sized", {name: _typed(value) for name, value in keys.items()}, tensors, vocab)
    path.write_bytes(head)
    os.truncate(path, len(head) + sum(bytes_of(dtype, shape) for _, dtype, shape in tensors))


def absent(architecture: str, config: dict[str, Any]) -> str:
    """A pattern of tensors that the loader would take and this model's file does not have."""
    text = config.get("text_config", config)
    patterns = [ABSENT.get(architecture, ABSENT[""]), r"^cls\.|nextn\.(embed_tokens|shared_head_head)"]
    if architecture not in ONE_MATRIX:
        patterns.append(r"attn_qkv\.weight")
    if config.get("tie_word_embeddings") or text.get("tie_word_embeddings"):
        patterns.append(r"^output\.weight$")
    if text.get("attention_k_eq_v"):
        full = (str(layer) for layer, kind in enumerate(text["layer_types"]) if kind == "full_attention")
        patterns.append(rf"^blk\.({'|'.join(full)})\.attn_v\.weight$")
    if "shared" in text.get("indexer_types", ()):
        without = (str(layer) for layer, kind in enumerate(text["indexer_types"]) if kind == "shared")
        patterns.append(rf"^blk\.({'|'.join(without)})\.indexer\.")
    if not text.get("moe_latent_size"):
        patterns.append("ffn_latent")
    if architecture in EITHER:
        dense = "|".join(map(str, dense_layers(text)))
        patterns += [rf"^blk\.({dense})\.{ROUTED}", rf"^blk\.(?!({dense})\.)\d+\.{DENSE}"]
    return "|".join(patterns)


def make(program: list[str], path: Path, keys: Keys, quant: str, config: dict[str, Any], experts: str = "") -> None:
    """Writes the file of a quantisation. program: the judge's. experts: their type, if it is not the mix's."""
    beside = path.with_suffix(".part")
    write(beside, keys, [])
    listed = _said([*program, "tensors", str(beside)])
    missing = re.compile(absent(keys["general.architecture"], config))
    shapes: dict[str, tuple[int, ...]] = {}
    for line in listed.splitlines():
        name, *sizes = line.split()
        shape = tuple(int(size) for size in reversed(sizes))
        if missing.search(name):
            continue
        if "ffn_gate_up_exps" in name:  # published files have its halves
            axis = len(shape) - (2 if name.endswith("weight") else 1)
            shape = tuple(size // 2 if number == axis else size for number, size in enumerate(shape))
            shapes |= {name.replace("gate_up", half): shape for half in ("gate", "up")}
        else:
            shapes[name] = shape
    whole = {name: _whole(name, shape) for name, shape in shapes.items()}
    write(beside, keys, [(name, whole[name], shape) for name, shape in shapes.items()])
    said = _said([*program, "types", str(beside), str(MIXES[quant])])
    for found in map(QUANTISED.match, said.splitlines()):
        if found and not (experts and EXACT.search(found[1])):
            whole[found[1]] = (found[3] or found[2]).upper()
    if experts:
        whole |= {name: experts for name in whole if name.endswith("_exps.weight")}
    write(path, keys, [(name, whole[name], shape) for name, shape in shapes.items()])
    beside.unlink()


def _whole(name: str, shape: tuple[int, ...]) -> str:
    """The type before a quantisation: converter's conversion/base.py, prepare_tensors."""
    if "tid2eid" in name:
        return "I32"
    small = len(shape) == 1 or name.endswith("_norm.weight") or not name.endswith(".weight")
    return "F32" if small or EXACT.search(name) else "F16"


def _said(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ValueError(f"{' '.join(words[-3:])}: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout
