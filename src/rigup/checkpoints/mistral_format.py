"""Mistral's own format: params.json instead of config.json, tensors with Mistral's names in consolidated*.safetensors.

What engines make of params.json: vLLM 0.33.0 transformers_utils/configs/mistral.py and transformers_utils/config.py;
SGLang 0.5.23 srt/utils/hf_transformers/mistral_utils.py.
"""

from __future__ import annotations

import re
from typing import Any

from rigup.checkpoints.config import LARGEST, Config, read_config
from rigup.checkpoints.repository import Repository
from rigup.errors import InputError
from rigup.layer_range import MOST_LAYERS
from rigup.plain_values import quoted
from rigup.sources.safetensors_files import MISTRAL, TRANSFORMERS

HINT = "choose another checkpoint of the model; rigup reads params.json as vLLM does"
# Of experts with shared ones, and of latent attention. Neither engine has transformers' class for them, Mistral4.
LATENT_EXPERTS = "MistralLarge3ForCausalLM"
# In an EAGLE head: vLLM 0.33.0 models/mistral_eagle.py and mistral_large_3_eagle.py.
HEAD = "eagle_linear.weight"
TOKENIZER = re.compile(r"tekken\.json|tokenizer\.model\.v[0-9].*")
# As vLLM takes it where neither params.json nor config.json says it.
POSITIONS = 128_000
NAMES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "vocab_size": "vocab_size",
    "head_dim": "head_dim",
    "max_position_embeddings": "max_position_embeddings",
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim",
    "qk_rope_head_dim": "qk_rope_head_dim",
    "v_head_dim": "v_head_dim",
}
EXPERT_NAMES = {
    "num_experts": "n_routed_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "expert_hidden_dim": "moe_intermediate_size",
    "first_k_dense_replace": "first_k_dense_replace",
    "num_shared_experts": "n_shared_experts",
}
REQUIRED = ("dim", "n_heads", "vocab_size")
MAY_BE_ZERO = ("q_lora_rank", "qk_rope_head_dim", "first_k_dense_replace", "num_shared_experts")


def mistral_params(repository: Repository, asked: bool | None = None) -> Config | None:
    """The params.json of a repository that is to be read in Mistral's own format; None for any other.

    asked: whether it is to be, None for what fits the repository. Where both formats are there, it is transformers',
    which every engine reads, unless the model is of the class that engines load from params.json alone.
    Raises InputError where params.json is missing or cannot be right.
    """
    if not MISTRAL.has_weights(repository.files) or asked is False:
        return None
    either = TRANSFORMERS.has_weights(repository.files) and TRANSFORMERS.config in repository.files
    try:
        params = _read(repository)
        language = _language_class(params)
    except InputError:
        if asked is None and either:
            return None
        raise
    if asked is None and either and language != LATENT_EXPERTS:
        return None
    return params


def check_tokenizer(repository: Repository) -> None:
    """Raises InputError where the tokenizer is missing, which engines need of every checkpoint but an EAGLE head."""
    if not any(TOKENIZER.fullmatch(path) for path in repository.files):
        raise InputError(
            f"{repository.where}: weights in {MISTRAL.title} without its tokenizer",
            "choose a repository that has both: weights and tekken.json",
        )


def mistral_class(params: Config, head: bool) -> str:
    """The class that vLLM makes of a params.json. head: whether it is of an EAGLE head, which its tensors tell.

    Raises InputError where vLLM would refuse it.
    """
    if head:
        return f"Eagle{_language_class(params)}"
    several = params.table("multimodal")
    sees = params.table("vision_encoder").data or several.table("vision_encoder_args").data
    hears = several.table("whisper_model_args").table("encoder_args")
    if sees and hears.data:
        raise params.wrong("multimodal", "a model with an encoder for images and one for sound, which no engine loads")
    if sees:
        return "PixtralForConditionalGeneration"
    if hears.data:
        return "VoxtralRealtimeGeneration" if hears.flag("causal") else "VoxtralForConditionalGeneration"
    return _language_class(params)


def transformers_names(params: Config, beside: Config | None, head: bool) -> Config:
    """The params.json with the keys of a config.json. beside: the repository's config.json, for what it leaves out.

    Raises InputError, naming the key of params.json, for a value that is missing or cannot be right.
    """
    params.number("n_layers", most=MOST_LAYERS)
    for key in REQUIRED:
        params.number(key)
    found = _renamed(params, NAMES)
    if params.flag("tied_embeddings"):
        found["tie_word_embeddings"] = True
    if "max_position_embeddings" not in found:
        text = beside.text_model if beside else params
        found["max_position_embeddings"] = text.number("max_position_embeddings", default=POSITIONS)
    named = beside.data.get("architectures") if beside else None
    usable = isinstance(named, list) and named and isinstance(named[0], str)
    found["architectures"] = named if usable else [mistral_class(params, head)]
    found |= _experts(params) | _windows(params) | _quantisation(params)
    return Config(found, params.where, params.hint)


def _read(repository: Repository) -> Config:
    content = repository.small(MISTRAL.config, LARGEST)
    if content is None:
        raise InputError(
            f"{repository.where}: weights in {MISTRAL.title} without a {MISTRAL.config}",
            f"choose a repository that has both: weights and {MISTRAL.config}",
        )
    return read_config(content, f"{repository.where}: {MISTRAL.config}", HINT)


def _language_class(params: Config) -> str:
    experts = params.table("moe")
    if experts.number("num_shared_experts", default=0, least=0) or (
        params.has("qk_nope_head_dim") and not experts.data
    ):
        for key in ("original_max_position_embeddings", "beta"):
            if not params.table("llama_4_scaling").has(key):
                raise params.wrong("llama_4_scaling", f"{key} is missing, and engines refuse such a model without it")
        return LATENT_EXPERTS
    if experts.data:  # Mixtral: vLLM's class has neither the keys nor the names of this format
        raise params.wrong("moe", "experts without shared ones, which no engine loads in this format")
    return "MistralForCausalLM"


def _renamed(table: Config, names: dict[str, str]) -> dict[str, Any]:
    there = {key: new for key, new in names.items() if table.has(key)}
    return {new: table.number(key, least=0 if key in MAY_BE_ZERO else 1) for key, new in there.items()}


def _experts(params: Config) -> dict[str, Any]:
    experts = params.table("moe")
    if not experts.data:
        return {}
    if (every := experts.number("route_every_n", default=1)) != 1:
        raise experts.wrong("route_every_n", f"must be 1, not {every}: rigup counts experts in every layer")
    for key in ("num_experts", "num_experts_per_tok"):
        experts.number(key)
    return _renamed(experts, EXPERT_NAMES)


def _windows(params: Config) -> dict[str, Any]:
    """The window of all layers; a list has one value for each layer, over and over, null for none."""
    said = params.data.get("sliding_window")
    if not isinstance(said, list):
        return {"sliding_window": params.number("sliding_window")} if params.has("sliding_window") else {}
    layers, sizes = params.layers, [size for size in said if size is not None]
    if not said or layers % len(said) or any(type(size) is not int or size < 1 or size != sizes[0] for size in sizes):
        raise params.wrong("sliding_window", f"must be one size, for some of {layers} layers, not {quoted(said)}")
    kinds = ["full_attention" if size is None else "sliding_attention" for size in said * (layers // len(said))]
    return {"layer_types": kinds, "sliding_window": sizes[0] if sizes else None}


def _quantisation(params: Config) -> dict[str, Any]:
    """The quantization_config: written as such, or in Mistral's own words."""
    said = params.table("quantization")
    if not said.data:
        found = params.table("quantization_config").data
        return {"quantization_config": found} if found else {}
    method = said.text("quant_method").lower().replace("_", "-")
    if method == "compressed-tensors":
        return {"quantization_config": {**said.data, "quant_method": method}}
    inputs, weights = said.text("qscheme_act", "TENSOR"), said.text("qformat_weight")
    if weights != "fp8_e4m3" or inputs not in ("TENSOR", "NO_SCALES"):
        raise params.wrong("quantization", f"must be fp8_e4m3 or compressed-tensors, not {quoted(said.data)}")
    scheme = "dynamic" if inputs == "NO_SCALES" else "static"
    return {"quantization_config": {"quant_method": "fp8", "activation_scheme": scheme}}
