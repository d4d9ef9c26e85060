"""One layer on its way from a configuration: the kind of its attention, and the fields of that kind."""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import Config
from rigup.errors import InputError

Layer = tuple[str, dict[str, Any]]

STATE_BITS = {"float32": 32, "float": 32, "bfloat16": 16, "float16": 16, "auto": 16}


def state_bits(config: Config, key: str, default: int = 16) -> int:
    """Bits of an element of a recurrent state, where the configuration says them; else the default."""
    return STATE_BITS.get(config.text(key).removeprefix("torch."), default)


def numbers(config: Config, key: str, first: int, last: int) -> list[int]:
    """A list of layers, which are counted from `first` to `last`. Raises InputError for anything else."""
    found = config.data.get(key)
    if not isinstance(found, list) or not all(type(n) is int and first <= n <= last for n in found):
        raise config.wrong(key, f"must be a list of layers from {first} to {last}")
    return found


def unknown_kind(config: Config, kind: str, key: str = "layer_types") -> InputError:
    """The error for a layer of a kind that rigup cannot count."""
    return config.wrong(key, f"rigup does not know layers of type {kind[:40]!r}")
