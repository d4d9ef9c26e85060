"""Sums over the tensors of a checkpoint, by the part of the model that they belong to: bytes, and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from rigup.checkpoints.places import WHOLE, Place, place_of
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.quantisation.scheme import Scheme
from rigup.tensor_bytes import LayerTensors, TensorBytes

WIDE = frozenset(("BF16", "F16", "F32", "F64"))


@dataclass
class PartSums:
    """Of one quantity. whole: by part outside of layers. layers: by part, for each layer."""

    whole: Counter[str] = field(default_factory=Counter)
    layers: list[Counter[str]] = field(default_factory=list)

    @property
    def body(self) -> int:
        """Everything that an engine loads for text: neither draft layers nor vision."""
        outside = self.whole["embedding"] + self.whole["head"] + self.whole["norms"]
        return outside + sum(sum(layer.values()) for layer in self.layers)

    def add(self, place: Place, count: int) -> None:
        """Counts something at its place."""
        parts = self.whole if place.layer is None else self.layers[place.layer]
        parts[place.part] += count

    def of(self, part: str) -> int:
        """One part in all layers."""
        return sum(layer[part] for layer in self.layers)


@dataclass(frozen=True)
class CheckpointSums:
    """Bytes and weights of a checkpoint. experts_only: whether attention is kept in 16 bits or more.

    expert_matrices: bytes of each layer's largest tensor of experts in a GGUF, 0 without.
    """

    bytes: PartSums
    weights: PartSums
    experts_only: bool
    expert_matrices: tuple[int, ...]


# What an EAGLE head mixes the target's hidden states with; it may share the target's embeddings.
EAGLE = ("fc.weight", "model.fc.weight", "eagle_linear.weight")


def sums_of(where: str, tensors: Iterable[Tensor], layers: int, scheme: Scheme, tied: bool) -> CheckpointSums:
    """The sums. layers: of the model, without draft layers. tied: whether a head of its own is not loaded.

    Raises InputError, beginning with `where`, where a layer has no tensors, or there are no embeddings.
    """
    sizes = PartSums(layers=[Counter() for _ in range(layers)])
    weights = PartSums(layers=[Counter() for _ in range(layers)])
    matrices = [0] * layers
    narrow, shares = 0, False
    for tensor in tensors:
        place = place_of(tensor.name, layers)
        shares = shares or tensor.name in EAGLE
        if place.part == "head" and tied:
            continue
        sizes.add(place, tensor.bytes)
        weights.add(place, scheme.weights(tensor.name, tensor.dtype, tensor.elements))
        if place.part == "experts" and place.layer is not None and scheme.engine_name == "gguf":
            matrices[place.layer] = max(matrices[place.layer], tensor.bytes)
        narrow += place.part == "attention" and len(tensor.shape) == 2 and tensor.dtype not in WIDE
    empty = [number for number, layer in enumerate(sizes.layers) if not layer]
    if empty:
        raise InputError(
            f"{where}: layer {empty[0]} of {layers} has no tensors", "choose a checkpoint with all of its weights"
        )
    if not sizes.whole["embedding"] and not shares:
        raise InputError(f"{where}: there are no embeddings", "choose a checkpoint with all of its weights")
    return CheckpointSums(sizes, weights, not narrow, tuple(matrices))


def tensor_bytes(sums: CheckpointSums) -> TensorBytes:
    """The table of a checkpoint's entry: equal layers together."""
    whole, alike = sums.bytes.whole, dict[tuple[tuple[str, int], ...], list[int]]()
    for number, (layer, matrix) in enumerate(zip(sums.bytes.layers, sums.expert_matrices, strict=True)):
        alike.setdefault((*sorted(layer.items()), ("expert_matrix", matrix)), []).append(number)
    entries = tuple(
        LayerTensors(layers=tuple(numbers), **{part: count for part, count in parts if count})
        for parts, numbers in alike.items()
    )
    return TensorBytes(**{part: whole[part] for part in WHOLE}, layers=entries)
