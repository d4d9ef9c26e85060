"""Which part of a model a tensor belongs to, by its name: as transformers and the makers' own files name them, or GGUF.

Sources: the modules of transformers 5.23.0 and of DeepSeek's and NVIDIA's repositories; gguf 0.19.0 constants.py;
Mistral's names: vLLM 0.33.0 models/mistral_large_3.py, mistral.py, pixtral.py and voxtral.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

WHOLE = ("embedding", "head", "norms", "vision", "mtp")

_EXPERT = re.compile(r"\.\d+\.")
_LAYER = re.compile(r"(?:^|\.)(?:layers|blk|h)\.(\d{1,4})\.(.+)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Outside of layers, the first that fits.
_OUTSIDE = {
    "vision": _words(
        "visual vision vision_tower vision_model vision_embed_tokens multi_modal_projector mm_projector embed_vision "
        "audio audio_tower audio_model embed_audio image_newline patch_merger vision_adapter vision_projection "
        "vit_large_projector perceiver v mm vision_encoder vision_language_adapter pre_mm_projector_norm "
        "whisper_encoder audio_language_projection"
    ),
    "mtp": _words("mtp mtp_layers nextn eagle"),
    "embedding": _words("embed_tokens embed embeddings word_embeddings wte tok_embeddings token_embd"),
    "head": _words("lm_head head output embed_out"),
}
_ATTENTION = _words("self_attn attention attn linear_attn self_attention mamba mixer temporal_block")
_KEY_VALUE = _words("k_proj v_proj wk wv attn_k attn_v")
_WHOLE_ON_RANKS = _words(
    "q_a_proj kv_a_proj_with_mqa fused_qkv_a_proj_with_mqa wq_a wkv_a wkv_a_with_mqa wkv kv_proj q_down_proj indexer "
    "compressor attn_q_a attn_kv_a_mqa attn_kv attn_compressor routed_expert_down_proj routed_expert_up_proj "
    "fc1_latent_proj fc2_latent_proj ffn_latent_in ffn_latent_out"
)
_ROUTER = _words("gate router wg e_score_correction_bias expert_bias ffn_gate_inp exp_probs_b tid2eid ffn_gate_tid2eid")
_SHARED = _words(
    "shared_expert shared_experts shared_mlp share_expert shared_expert_gate ffn_gate_inp_shexp ffn_gate_shexp "
    "ffn_up_shexp ffn_down_shexp"
)
_DENSE_IN_MIXER = _words("up_proj down_proj gate_proj")


@dataclass(frozen=True, slots=True)
class Place:
    """A part of the model; `layer` is None outside of layers."""

    part: str
    layer: int | None = None


def place_of(name: str, layers: int) -> Place:
    """Where a tensor belongs in a model of so many layers. A name that tells nothing counts as a norm: never cut."""
    # EAGLE-3 heads call their one layer so: SafeAILab/EAGLE, vLLM 0.33.0 llama_eagle3.py.
    name = re.sub(r"^midlayer\.", "layers.0.", name)
    found = _LAYER.search(name)
    outside = _outside(name[: found.start()] if found else name)
    if found is None or outside in ("vision", "mtp"):
        return Place(outside)
    number = int(found[1])
    if number >= layers or ".nextn." in name:
        return Place("mtp")
    return Place(_in_any_layer(_EXPERT.sub(".", found[2]), name.startswith("blk.")), number)


@lru_cache(maxsize=4096)
def _in_any_layer(rest: str, gguf: bool) -> str:
    """The part for the rest of a name behind the layer's number, the numbers of experts left out."""
    words = rest.split(".")
    return _in_gguf(words) if gguf else _in_layer(words)


@lru_cache(maxsize=4096)
def _outside(name: str) -> str:
    words = name.split(".")
    return next((part for part, names in _OUTSIDE.items() if names.intersection(words)), "norms")


def _in_layer(words: list[str]) -> str:
    module = words[-2] if len(words) > 1 else words[-1]
    if "norm" in module:
        return "norms"
    if _SHARED.intersection(words):
        return "shared_experts"
    if "experts" in words:
        return "experts"
    if _WHOLE_ON_RANKS.intersection(words):
        return "replicated"
    mixer = "mixer" in words
    if _ATTENTION.intersection(words) and not (mixer and _DENSE_IN_MIXER.intersection(words)):
        if mixer and _ROUTER.intersection(words):
            return "router"
        return "key_value" if _KEY_VALUE.intersection(words) else "attention"
    if _ROUTER.intersection(words):
        return "router"
    if {"mlp", "feed_forward", "ffn", "moe", "block_sparse_moe", "mixer"}.intersection(words):
        return "dense"
    return "norms"


def _in_gguf(words: list[str]) -> str:
    name = words[0]
    if name.endswith("norm") or name.startswith("hc_"):
        return "norms"
    if name in _SHARED:
        return "shared_experts"
    if name.endswith(("_exps", "_chexps")):
        return "experts"
    if name in _ROUTER:
        return "router"
    if name in _WHOLE_ON_RANKS or name.startswith(("indexer", "attn_compress")):
        return "replicated"
    if name in _KEY_VALUE:
        return "key_value"
    if name.startswith(("attn_", "ssm_")):
        return "attention"
    return "dense" if name.startswith("ffn_") else "norms"
