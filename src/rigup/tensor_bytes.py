"""Where the bytes of a checkpoint lie, tensor by tensor, as its files' headers say."""

from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from rigup.layer_range import LayerRange, check_each_once
from rigup.units import Frozen

Bytes = Annotated[int, Field(ge=0)]


class LayerTensors(Frozen):
    """Bytes of ONE layer of those that `layers` names; all of them are equal. Scales belong to their tensors.

    attention: what tensor parallelism cuts evenly (queries, output, linear attention). key_value: projections of keys
    and values where they are tensors of their own, cut down to one head. replicated: what every rank holds whole
    (projections of latent attention down to the low rank, indexers, projections to the width of narrower experts).
    dense: feed-forward without experts. router, experts (all of them), shared_experts: the mixture of experts.
    expert_matrix: the largest of the experts' tensors, where one holds a matrix of all of them, as in GGUF; a part of
    experts. norms: small vectors, whole on every rank.
    """

    layers: LayerRange
    attention: Bytes = 0
    key_value: Bytes = 0
    replicated: Bytes = 0
    dense: Bytes = 0
    router: Bytes = 0
    experts: Bytes = 0
    expert_matrix: Bytes = 0
    shared_experts: Bytes = 0
    norms: Bytes = 0

    @property
    def total(self) -> int:
        """The whole layer."""
        attention = self.attention + self.key_value + self.replicated + self.norms
        return attention + self.dense + self.router + self.experts + self.shared_experts


class TensorBytes(Frozen):
    """Bytes of a checkpoint by place. head: 0 where it is tied to the embeddings. norms: those outside of layers.

    vision, mtp: towers and built-in draft layers, counted only where the engine loads them. layers: every layer once.
    """

    embedding: Bytes
    head: Bytes = 0
    norms: Bytes = 0
    vision: Bytes = 0
    mtp: Bytes = 0
    layers: Annotated[tuple[LayerTensors, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _every_layer_once(self) -> "TensorBytes":
        check_each_once("layers", (part.layers for part in self.layers))
        return self

    @cached_property
    def by_layer(self) -> tuple[LayerTensors, ...]:
        """The bytes of each layer, in order."""
        found = {number: part for part in self.layers for number in part.layers}
        return tuple(found[number] for number in sorted(found))

    def scaled(self, size: int) -> "TensorBytes":
        """The same shares of another size; none of them is rounded up."""
        outside = {name: getattr(self, name) * size // self.total for name in _OUTSIDE}
        layers = tuple(
            LayerTensors(layers=part.layers, **{name: getattr(part, name) * size // self.total for name in _IN_LAYER})
            for part in self.layers
        )
        return TensorBytes(**outside, layers=layers)

    @property
    def body(self) -> int:
        """All layers together."""
        return sum(part.total * len(part.layers) for part in self.layers)

    @property
    def total(self) -> int:
        """Every tensor of the checkpoint."""
        return self.embedding + self.head + self.norms + self.vision + self.mtp + self.body


_OUTSIDE = tuple(name for name in TensorBytes.model_fields if name != "layers")
_IN_LAYER = tuple(name for name in LayerTensors.model_fields if name != "layers")
