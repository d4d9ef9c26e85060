"""How many bytes of a checkpoint lie where: embeddings, output head, and each layer's experts and everything else.

Sources: the shapes in the catalogue; what vLLM and SGLang shard and replicate as read in their minimax_m2.py
(0.33.0, 0.5.23):
q, k, v, o, embeddings and head are cut, router and norms are whole on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.errors import InputError

_ROUTER_BYTES = 4
_SCHEME_BITS = {"bf16": 16.0, "fp8_block128": 8.0, "mxfp8": 8.25, "nvfp4": 4.5, "int4_g32": 4.625, "int4_g64": 4.375}
_SCHEME_BITS["int4_g128"] = 4.25


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of one checkpoint by place. `embedding` and `head` once; the others for one layer, layers taken as equal.

    head is 0 where it is tied to the embeddings. attention and dense are cut by tensor parallelism, router is not.
    """

    embedding: float
    head: float
    attention: float
    dense: float
    router: float
    experts: float

    @property
    def layer(self) -> float:
        """One whole layer."""
        return self.attention + self.dense + self.router + self.experts


@lru_cache(maxsize=1024)
def weights_of(checkpoint: CheckpointEntry, model: Model) -> Weights:
    """Where the bytes of a checkpoint lie, none of them less than nothing.

    What the shapes do not explain (mixes of a GGUF) is shared out over the layers.
    """
    found = _weights_of(checkpoint, model)
    cut = (max(0.0, part) for part in (found.attention, found.dense, found.router, found.experts))
    return Weights(found.embedding, found.head, *cut)


def check_size(checkpoint: CheckpointEntry, model: Model) -> None:
    """Raises InputError for an entry of the catalogue with fewer bytes than its parts take."""
    weights = _weights_of(checkpoint, model)
    if min(weights.attention, weights.dense, weights.experts) < 0:
        raise InputError(
            f"checkpoints: {checkpoint.label}: {checkpoint.bytes:,} bytes are too few for {model.name}: embeddings, "
            "router and attention alone need more",
            "correct bytes, scheme, scope or bits in the fleet's catalogue/checkpoints/",
        )


def _weights_of(checkpoint: CheckpointEntry, model: Model) -> Weights:
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
        return Weights(embedding, head, attention, rest, router, 0.0)
    shared = model.shared_experts * model.expert_parameters * model.moe_layers
    dense = 3 * model.hidden * model.intermediate * model.dense_layers
    dense_bytes = (shared + dense) / layers * average_bits / 8
    return Weights(embedding, head, attention, dense_bytes, router, rest - dense_bytes)


def active_bytes(checkpoint: CheckpointEntry, model: Model, tokens: int = 1) -> float:
    """Bytes of weights that one decode step for `tokens` sequences reads, every GPU together.

    Each token routes to its own experts; the expected number of different ones is that of independent uniform draws.
    """
    weights = weights_of(checkpoint, model)
    head = weights.head or weights.embedding
    body = weights.attention + weights.dense + weights.router
    kept = checkpoint.experts or model.experts
    if kept:
        touched = 1 - (1 - model.experts_per_token / kept) ** tokens
        body += weights.experts * touched
    return head + body * model.layers


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
