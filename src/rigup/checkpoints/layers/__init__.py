"""What the layers of a model keep of a sequence, as its config.json says: one module for each way of saying it.

A way is a module of this package with a function `read`, which takes the configuration of the language model and gives
the attention of every layer, or None where the configuration says it in another way. The package finds it. Where no
other way applies, the keys that all models share are read: grouped_heads. Built-in draft layers are as the last layer,
unless the configuration goes on behind it or the module has a function `draft`, which gives the layers of one of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from rigup.attention import Attention, class_of
from rigup.checkpoints.config import Config, built
from rigup.checkpoints.layers import grouped_heads
from rigup.checkpoints.layers.layer import Layer

READERS = tuple(
    module
    for module in (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    if hasattr(module, "read") and module is not grouped_heads
)
# Where a configuration says how many draft layers there are, and lists that may go on with them behind the last layer.
DRAFT_COUNTS = ("num_mtp_modules", "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
LISTS = ("layer_types", "hybrid_layer_pattern", "compress_ratios", "indexer_types", "num_attention_heads_per_layer")
MOST_DRAFT_LAYERS = 16


def read_layers(config: Config) -> tuple[Attention, ...]:
    """The attention of every layer, equal ones together. Raises InputError naming the key that cannot be used."""
    return together(config, _read(config)[1])


def read_draft_layers(config: Config) -> tuple[Attention, ...]:
    """The same of built-in draft layers, numbered from 0 on; () where the configuration has none."""
    count = config.number(*DRAFT_COUNTS, default=0, least=0, most=MOST_DRAFT_LAYERS)
    if not count:
        return ()
    layers, known = config.layers, [len(config.data[key]) for key in LISTS if isinstance(config.data.get(key), list)]
    if known and min(known) >= layers + count:
        longer = Config({**config.data, "num_hidden_layers": layers + count}, config.where)
        return together(config, _read(longer)[1][layers:])
    module, every = _read(config)
    return together(config, (module.draft(config) if hasattr(module, "draft") else every[-1:]) * count)


def _read(config: Config) -> tuple[ModuleType, list[Layer]]:
    """The module that reads the configuration, and every layer."""
    for module in READERS:
        if (layers := module.read(config)) is not None:
            return module, layers
    return grouped_heads, grouped_heads.read(config)


def together(config: Config, layers: Iterable[Layer]) -> tuple[Attention, ...]:
    """Equal layers as one entry, in the order of their first."""
    entries: dict[tuple[Any, ...], list[int]] = {}
    for number, (kind, fields) in enumerate(layers):
        entries.setdefault((kind, *sorted(fields.items())), []).append(number)
    where = f"{config.where}: attention"
    return tuple(
        built(class_of(kind), {"layers": tuple(numbers), **dict(fields)}, where)
        for (kind, *fields), numbers in entries.items()
    )
