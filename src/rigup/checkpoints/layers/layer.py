"""One layer on its way from a configuration: the kind of its attention, and the fields of that kind."""

from __future__ import annotations

from typing import Any

from rigup.checkpoints.config import Config

Layer = tuple[str, dict[str, Any]]

STATE_BITS = {"float32": 32, "float": 32, "bfloat16": 16, "float16": 16, "auto": 16}


def state_bits(config: Config, *keys: str, default: int = 16) -> int:
    """Bits of an element of a recurrent state, where the configuration says them; else the default."""
    for key in keys:
        if config.has(key):
            return STATE_BITS.get(config.text(key).removeprefix("torch."), default)
    return default
