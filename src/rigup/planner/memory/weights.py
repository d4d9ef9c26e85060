"""How many bytes of a checkpoint lie where: embeddings, output head, and each layer's parts.

Where the checkpoint's entry has the table of its tensors, that is the truth. Else the shapes in the catalogue tell,
layers taken as equal. What vLLM and SGLang shard and replicate: as read in their minimax_m2.py and deepseek_v2.py
(0.33.0, 0.5.23): queries, output, embeddings and head are cut, KV heads down to one, router and norms are whole on
every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.errors import InputError
from rigup.tensor_bytes import LayerTensors, TensorBytes

_ROUTER_BYTES = 4
_SCHEME_BITS = {
    "bf16": 16.0,
    "fp8_block128": 8.0,
    "mxfp8": 8.25,
    "nvfp4": 4.5,
    "nvfp4_a16": 4.5,
    "int4_g32": 4.625,
    "int4_g64": 4.375,
    "int4_g128": 4.25,
}


class LayerWeights(NamedTuple):
    """Bytes of one layer by part.

    Tensor parallelism cuts attention, dense and shared, key_value down to one head; whole is whole on every rank.
    expert_matrix: a part of experts, the largest tensor that holds a matrix of all of them; 0 where it is not known.
    """

    attention: float = 0.0
    key_value: float = 0.0
    whole: float = 0.0
    dense: float = 0.0
    experts: float = 0.0
    expert_matrix: float = 0.0

    @property
    def total(self) -> float:
        """The whole layer."""
        return self.attention + self.key_value + self.whole + self.dense + self.experts


class Weights(NamedTuple):
    """Bytes of one checkpoint by place. head is 0 where it is tied to the embeddings.

    vision and mtp are loaded where the engine is told to; see rigup.planner.memory.loading.
    """

    embedding: float
    head: float
    vision: float
    mtp: float
    layers: tuple[LayerWeights, ...]

    @property
    def body(self) -> float:
        """All layers."""
        return sum(layer.total for layer in self.layers)

    @property
    def experts(self) -> float:
        """The experts of one layer that has some."""
        return max(layer.experts for layer in self.layers)

    def experts_on_host(self, shares: Sequence[float]) -> float:
        """The experts in host memory. shares: the part of each layer's experts."""
        if not any(shares):
            return 0.0
        return sum(share * layer.experts for layer, share in zip(self.layers, shares, strict=True))

    def expert_copies(self, shares: Sequence[float], copies: int) -> float:
        """What llama.cpp holds of experts in host memory while a GPU computes them. shares: as for experts_on_host.

        copies: of the largest matrix. It copies one matrix after another, into the place of the one before, unless
        that has been broken up (docs/memory.md). All experts of a layer where the matrices are not known. Source:
        llama.cpp b11434, ggml/src/ggml-backend.cpp, a split for each weight, and ggml/src/ggml-alloc.c, best fit.
        """
        moved = [layer for layer, share in zip(self.layers, shares, strict=True) if share and layer.experts]
        largest = max((layer.expert_matrix for layer in moved), default=0.0)
        if not all(layer.expert_matrix for layer in moved):
            return max(largest, *(layer.experts for layer in moved))
        return copies * largest


class Growth(NamedTuple):
    """By what factors weights grow as an engine repacks them: experts, and the other matrices of layers."""

    experts: float = 1.0
    others: float = 1.0


STORED = Growth()


@lru_cache(maxsize=1024)
def weights_of(checkpoint: CheckpointEntry, model: Model) -> Weights:
    """Where the bytes of a checkpoint lie, none of them less than nothing.

    What the shapes do not explain (mixes of a GGUF) is shared out over the layers.
    """
    if checkpoint.tensors is not None:
        return _from_table(checkpoint.tensors)
    embedding, head, layer = _from_shapes(checkpoint, model)
    parts = (layer.attention, layer.key_value, layer.whole, layer.dense, layer.experts)
    return Weights(embedding, head, 0.0, 0.0, (LayerWeights(*(max(0.0, part) for part in parts)),) * model.layers)


@lru_cache(maxsize=4096)
def rank_layers(
    checkpoint: CheckpointEntry, model: Model, tensor: int, sharing: int, growth: Growth = STORED
) -> tuple[float, ...]:
    """Bytes that one of `tensor` ranks holds of each layer. `sharing` ranks share the experts."""
    layers = weights_of(checkpoint, model).layers
    shares = {number: entry.key_value_share(tensor) for entry in model.attention for number in entry.layers}
    return tuple(
        ((layer.attention + layer.dense) / tensor + layer.key_value * shares[number]) * growth.others
        + layer.whole
        + layer.experts * growth.experts / sharing
        for number, layer in enumerate(layers)
    )


@lru_cache(maxsize=4096)
def rank_totals(
    checkpoint: CheckpointEntry, model: Model, tensor: int, sharing: int, growth: Growth = STORED
) -> tuple[float, ...]:
    """The same added up: what the layers before each position take, and last all of them."""
    return (0.0, *accumulate(rank_layers(checkpoint, model, tensor, sharing, growth)))


def check_size(checkpoint: CheckpointEntry, model: Model) -> None:
    """Raises InputError for an entry of the catalogue with fewer bytes than its parts take, or other layers."""
    if checkpoint.tensors is not None:
        _check_table(checkpoint, checkpoint.tensors, model)
        return
    _, _, layer = _from_shapes(checkpoint, model)
    if min(layer.attention, layer.dense, layer.experts) < 0:
        raise InputError(
            f"checkpoints: {checkpoint.label}: {checkpoint.bytes:,} bytes are too few for {model.name}: embeddings, "
            "router and attention alone need more",
            "correct bytes, scheme, scope or bits in the fleet's catalogue/checkpoints/",
        )


def _check_table(checkpoint: CheckpointEntry, tensors: TensorBytes, model: Model) -> None:
    if len(tensors.by_layer) != model.layers:
        raise InputError(
            f"checkpoints: {checkpoint.label}: tensors.layers: {len(tensors.by_layer)} layers, but {model.name} has "
            f"{model.layers}",
            "correct tensors.layers in the fleet's catalogue/checkpoints/",
        )
    if tensors.total > checkpoint.bytes:
        raise InputError(
            f"checkpoints: {checkpoint.label}: tensors: {tensors.total:,} bytes are more than its files have "
            f"({checkpoint.bytes:,})",
            "correct bytes or tensors in the fleet's catalogue/checkpoints/",
        )


def _from_table(tensors: TensorBytes) -> Weights:
    """Norms outside of layers are with the embeddings: a few hundred kB."""
    known = {id(part): _layer(part) for part in tensors.layers}
    layers = tuple(known[id(part)] for part in tensors.by_layer)
    return Weights(
        float(tensors.embedding + tensors.norms), float(tensors.head), float(tensors.vision), float(tensors.mtp), layers
    )


def _layer(part: LayerTensors) -> LayerWeights:
    return LayerWeights(
        attention=float(part.attention),
        key_value=float(part.key_value),
        whole=float(part.replicated + part.router + part.norms),
        dense=float(part.dense + part.shared_experts),
        experts=float(part.experts),
        expert_matrix=float(part.expert_matrix),
    )


def _from_shapes(checkpoint: CheckpointEntry, model: Model) -> tuple[float, float, LayerWeights]:
    """Bytes of the embeddings, the head and one layer, as the shapes and the bits a weight say."""
    embedding = model.embedding_parameters * checkpoint.embedding_bits / 8
    head = 0.0 if model.tied_embeddings else model.embedding_parameters * checkpoint.head_bits / 8
    body = checkpoint.bytes - embedding - head
    layers = model.layers
    kept = checkpoint.experts or model.experts
    router = model.hidden * kept * _ROUTER_BYTES if kept else 0.0
    average_bits = body * 8 / _body_parameters(checkpoint, model)
    attention = model.attention_parameters * _attention_bits(checkpoint, average_bits) / 8
    rest = body / layers - router - attention
    if kept == 0:
        return embedding, head, LayerWeights(attention=attention, whole=router, dense=rest)
    shared = model.shared_experts * model.expert_parameters * model.moe_layers
    dense = 3 * model.hidden * model.intermediate * model.dense_layers
    dense_bytes = (shared + dense) / layers * average_bits / 8
    layer = LayerWeights(attention=attention, whole=router, dense=dense_bytes, experts=rest - dense_bytes)
    return embedding, head, layer


@lru_cache(maxsize=4096)
def active_bytes(checkpoint: CheckpointEntry, model: Model, tokens: int = 1) -> float:
    """Bytes of weights that one decode step for `tokens` sequences reads, every GPU together.

    Each token routes to its own experts; the expected number of different ones is that of independent uniform draws.
    """
    weights = weights_of(checkpoint, model)
    head = weights.head or weights.embedding
    kept = checkpoint.experts or model.experts
    touched = 1 - (1 - model.experts_per_token / kept) ** tokens if kept else 0.0
    experts = sum(layer.experts for layer in weights.layers)
    return head + weights.body - experts * (1 - touched)


def _attention_bits(checkpoint: CheckpointEntry, average_bits: float) -> float:
    if checkpoint.attention_bits is not None:
        return checkpoint.attention_bits
    if checkpoint.scope == "experts":
        return 16.0
    return _SCHEME_BITS.get(checkpoint.scheme, average_bits)


def _body_parameters(checkpoint: CheckpointEntry, model: Model) -> int:
    total = checkpoint.parameters or model.parameters
    return total - model.embedding_parameters * (1 if model.tied_embeddings else 2)


def bits_per_weight(checkpoint: CheckpointEntry, model: Model) -> float:
    """How many bits the checkpoint spends on a weight, on average."""
    return checkpoint.bytes * 8 / (checkpoint.parameters or model.parameters)
