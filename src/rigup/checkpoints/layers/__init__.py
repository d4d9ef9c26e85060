"""What the layers of a model keep of a sequence, as its config.json says: one module for each way of saying it.

A way is a module of this package with a function `read`, which takes the configuration of the language model and gives
the attention of every layer, or None where the configuration says it in another way. The package finds it. Where no
other way applies, the keys that all models share are read: grouped_heads.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic import ValidationError

from rigup.attention import KINDS, Attention
from rigup.checkpoints.config import HINT, Config
from rigup.checkpoints.layers import grouped_heads
from rigup.checkpoints.layers.layer import Layer
from rigup.errors import InputError

READERS = tuple(
    module.read
    for module in (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    if hasattr(module, "read") and module is not grouped_heads
)


def read_layers(config: Config) -> tuple[Attention, ...]:
    """The attention of every layer, equal ones together. Raises InputError naming the key that cannot be used."""
    found = next((layers for reader in READERS if (layers := reader(config)) is not None), None)
    return together(config, grouped_heads.read(config) if found is None else found)


def together(config: Config, layers: Iterable[Layer]) -> tuple[Attention, ...]:
    """Equal layers as one entry, in the order of their first."""
    entries: dict[tuple[Any, ...], list[int]] = {}
    for number, (kind, fields) in enumerate(layers):
        entries.setdefault((kind, *sorted(fields.items())), []).append(number)
    try:
        return tuple(KINDS[kind](layers=tuple(numbers), **dict(fields)) for (kind, *fields), numbers in entries.items())
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{config.where}: attention: {name}: {first['msg'][:100]}", HINT) from None
