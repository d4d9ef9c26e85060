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
# What the loader takes if a file has it, which those of published models do not: biases, scales of NVFP4, tied heads.
ABSENT = {
    "": r"attn_(q|k|v|qkv|output)\.bias$|\.(scale|input_scale)$|rope_freqs|ffn_(up|down|gate)\.bias$|_exps\.bias$",
    "gpt-oss": r"\.(scale|input_scale)$|rope_freqs",
    "gemma4": r"attn_(q|k|v|qkv|output)\.bias$|(?<!gate_inp)(?<!down_exps)\.(scale|input_scale)$|_exps\.bias$",
}
ONE_MATRIX = ("qwen35", "qwen35moe")
"""Architectures whose files have queries, keys and values in one."""
QUANTISED = re.compile(r"^\[ *\d+/ *\d+\] +(\S+) +- \[.*type = +(\w+),.*?(?:\((\w+)\))?$")


def heads(text: Text) -> int:
    """The width of one."""
    width: int = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    return width


def _plain(text: Text) -> Keys:
    return {"attention.key_length": heads(text), "attention.value_length": heads(text)}


def _llama(text: Text) -> Keys:
    return {"rope.dimension_count": heads(text)}


def _minimax(text: Text) -> Keys:
    routed = {"expert_feed_forward_length": text["intermediate_size"], "expert_gating_func": 2}
    return {**_plain(text), "rope.dimension_count": text["rotary_dim"], **routed}


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
        "leading_dense_block_count": text["first_k_dense_replace"],
        "expert_shared_count": text["n_shared_experts"],
        "expert_weights_scale": float(text["routed_scaling_factor"]),
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }
    if "index_n_heads" in text:
        keys |= {
            "attention.indexer.head_count": text["index_n_heads"],
            "attention.indexer.key_length": text["index_head_dim"],
            "attention.indexer.top_k": text["index_topk"],
        }
    if text.get("indexer_types"):
        keys["attention.indexer.types"] = [kind == "full" for kind in text["indexer_types"]]
    return keys


METADATA: dict[str, Callable[[Text], Keys]] = {
    "llama": _llama,
    "qwen3moe": _plain,
    "qwen35": _qwen35,
    "qwen35moe": _qwen35,
    "minimax-m2": _minimax,
    "gpt-oss": _gpt_oss,
    "gemma4": _gemma4,
    "deepseek2": _latent,
    "deepseek32": _latent,
    "glm-dsa": _latent,
}
"""By architecture, what its loader reads beyond what all read."""


def metadata(architecture: str, config: dict[str, Any], context: int) -> Keys:
    """All that a file says of a model but its vocabulary. context: the longest."""
    text = config.get("text_config", config)
    rope = text.get("rope_parameters") or {}
    theta = text.get("rope_theta") or rope.get("rope_theta") or rope.get("full_attention", {}).get("rope_theta") or 1e4
    keys = {
        "vocab_size": text["vocab_size"],
        "context_length": context,
        "embedding_length": text["hidden_size"],
        "block_count": text["num_hidden_layers"],
        "feed_forward_length": text.get("intermediate_size") or text["moe_intermediate_size"],
        "attention.head_count": text["num_attention_heads"],
        "attention.head_count_kv": text["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": float(text["rms_norm_eps"]),
        "rope.freq_base": float(theta),
    }
    experts = text.get("num_experts") or text.get("n_routed_experts") or text.get("num_local_experts")
    if experts:
        keys |= {
            "expert_count": experts,
            "expert_used_count": text.get("num_experts_per_tok") or text["top_k_experts"],
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
    patterns = [ABSENT.get(architecture, ABSENT[""]), r"nextn\.(embed_tokens|shared_head_head)"]
    if architecture not in ONE_MATRIX:
        patterns.append(r"attn_qkv\.weight")
    if config.get("tie_word_embeddings") or text.get("tie_word_embeddings"):
        patterns.append(r"^output\.weight$")
    if text.get("attention_k_eq_v"):
        full = (str(layer) for layer, kind in enumerate(text["layer_types"]) if kind == "full_attention")
        patterns.append(rf"^blk\.({'|'.join(full)})\.attn_v\.weight$")
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
    whole = {name: "F32" if _small(name, shape) else "F16" for name, shape in shapes.items()}
    write(beside, keys, [(name, whole[name], shape) for name, shape in shapes.items()])
    said = _said([*program, "types", str(beside), str(MIXES[quant])])
    for found in map(QUANTISED.match, said.splitlines()):
        if found:
            whole[found[1]] = (found[3] or found[2]).upper()
    if experts:
        whole |= {name: experts for name in whole if name.endswith("_exps.weight")}
    write(path, keys, [(name, whole[name], shape) for name, shape in shapes.items()])
    beside.unlink()


def _small(name: str, shape: tuple[int, ...]) -> bool:
    kept = ("ffn_gate_inp", "ssm_conv1d")
    return len(shape) == 1 or name.endswith((".bias", "_norm.weight")) or any(part in name for part in kept)


def _said(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise ValueError(f"{' '.join(words[-3:])}: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout
