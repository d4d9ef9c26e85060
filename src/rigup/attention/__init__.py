"""What the layers of a model keep of a sequence: one module for each class of attention; may import nouns only.

A class of attention is a module of this package with one subclass of AttentionClass, whose `kind` is the module's name.
The package finds it; nothing else learns its name. It is imported for models that have such layers.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from rigup.attention.attention_class import AttentionClass

_BASES = {"attention_class", "recurrent"}
KINDS = tuple(sorted(module.name for module in iter_modules(__path__) if module.name not in _BASES))
"""The `kind` of every class of attention."""


def class_of(kind: str) -> type[AttentionClass]:
    """The class of attention of one of KINDS."""
    module = import_module(f"{__name__}.{kind}")
    found: type[AttentionClass] = next(
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, AttentionClass) and each.model_fields["kind"].default == kind
    )
    return found


def _of_its_class(value: Any) -> Any:
    """A table as an instance of the class that its `kind` names."""
    if not isinstance(value, dict):
        return value
    if value.get("kind") not in KINDS:
        raise ValueError(f"kind: must be one of {', '.join(KINDS)}")
    return class_of(value["kind"]).model_validate(value, strict=True)


if TYPE_CHECKING:
    Attention = AttentionClass
else:
    Attention = Annotated[SerializeAsAny[AttentionClass], BeforeValidator(_of_its_class)]
