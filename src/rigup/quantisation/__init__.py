"""How checkpoints store quantised weights: one module for each scheme or family; may import nouns only.

A scheme is a module of this package with a function `read`, which takes a quantization_config and returns the scheme
where the configuration is of that kind. The package finds it; nothing else learns its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.quantisation.scheme import Scheme, Unquantised

READERS = tuple(
    module.read
    for module in (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    if hasattr(module, "read")
)


def read_scheme(config: Mapping[str, Any] | None, where: str) -> Scheme:
    """The scheme that a quantization_config says; 16-bit weights for None.

    where: what messages begin with. Raises InputError for a method that rigup does not know, and for a known one whose
    figures are missing or absurd.
    """
    if not config:
        return Unquantised()
    try:
        found: Scheme | None = next((scheme for reader in READERS if (scheme := reader(config)) is not None), None)
    except ValueError as error:
        raise InputError(f"{where}: {error}", "choose another checkpoint of the model") from None
    if found is None:
        method = config.get("quant_method", config.get("quant_algo"))
        raise InputError(
            f"{where}: unknown quantisation {quoted(method)}", "choose a checkpoint in another quantisation"
        )
    return found
