"""Shapes that a config.json leaves out because transformers' class has them as its defaults.

transformers does not write such values for a language model within a model that also sees or hears. The file is
written by tests/published/collect.py from the fields of the classes; what a class computes from others is not in it.
"""

from __future__ import annotations

import json
from functools import cache

from rigup.catalogue.data_files import DATA
from rigup.checkpoints.config import TEXT_MODELS, Config
from rigup.checkpoints.mixture import EXPERTS, PER_TOKEN

# What a whole configuration always says: without these it is damaged, whatever its class has.
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings")
# Names of one size: where the configuration says it by one of them, none of the others is taken.
NAMES = (
    EXPERTS,
    PER_TOKEN,
    ("num_hidden_layers", "n_layer", "n_layers", "layers_block_type"),
    ("hidden_size", "n_embd", "d_model"),
    ("num_attention_heads", "n_head", "n_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    ("head_dim", "attention_head_dim"),
    ("max_position_embeddings", "n_positions", "max_sequence_length"),
    ("n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size"),
    ("sliding_window_pattern", "has_own_layer_types", "layer_types", "hybrid_layer_pattern"),
)


def with_class_defaults(config: Config) -> Config:
    """The configuration with what its class, and that of its language model, take for what it leaves out.

    A value of null stays: the class then has None, or what it computes.
    """
    return Config(_completed(config.data, SIZES), config.where, config.hint)


def left_out(config: Config) -> str:
    """What the language model leaves out, and where its values are from: "head_dim as in ..."; "" for nothing."""
    said, whole = config.text_model.data, with_class_defaults(config).text_model.data
    if not (keys := sorted(whole.keys() - said.keys())):
        return ""
    return f"{', '.join(keys)}: {_table()['source']}, {whole['model_type']}"


def _completed(data: dict[str, object], required: tuple[str, ...]) -> dict[str, object]:
    """required: keys that are not taken. An inner model is what transformers writes without its class's values."""
    inner = {key: _completed(table, ()) for key in TEXT_MODELS if isinstance(table := data.get(key), dict)}
    if inner:
        return {**data, **inner}
    kind = data.get("model_type")
    found = _table()["classes"].get(kind, {}) if isinstance(kind, str) else {}
    return {**{key: value for key, value in found.items() if _lacks(data, key) and key not in required}, **data}


def _lacks(data: dict[str, object], key: str) -> bool:
    names = next((names for names in NAMES if key in names), (key,))
    return not any(name in data for name in names)


@cache
def _table() -> dict[str, dict[str, dict[str, int | bool]]]:
    found: dict[str, dict[str, dict[str, int | bool]]] = json.loads((DATA / "class_defaults.json").read_text())
    return found
