"""What the layers of a model keep of a sequence: one module for each class of attention; may import nouns only.

A class of attention is a module of this package with one subclass of AttentionClass. The package finds it; nothing else
learns its name.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field
from pydantic_core import PydanticUndefined

from rigup.attention.attention_class import AttentionClass


def _kinds() -> dict[str, type[AttentionClass]]:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    left, found = [AttentionClass], dict[str, type[AttentionClass]]()
    while left:
        for kind in left.pop().__subclasses__():
            left.append(kind)
            if kind.model_fields["kind"].default is not PydanticUndefined:
                found[kind.model_fields["kind"].default] = kind
    return dict(sorted(found.items()))


KINDS = _kinds()
"""Every class of attention by its `kind`."""

if TYPE_CHECKING:
    Attention = AttentionClass
else:
    Attention = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007
