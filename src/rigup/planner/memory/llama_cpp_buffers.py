"""What llama.cpp reserves of each GPU for a step: what its own code said of the shape, else a formula that counts high.

Copies of experts in host memory come to it on the first GPU, the logits on the last (rigup.planner.memory.llama_cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rigup.attention.attention_class import Storage
from rigup.catalogue.buffers import GPUS, BatchShape, Hosted, Position, Reserved, asked_layers, buffers_of
from rigup.catalogue.model import Model
from rigup.planner.memory.kv_cache import layer_caches, layer_token_bytes

# ggml_backend_sched keeps four copies of a step's inputs when it pipelines over several GPUs (GGML_SCHED_MAX_COPIES).
PIPELINE_COPIES = 4
# Architectures of which llama.cpp computes the experts' down projections on the processor, wherever the weights are:
# b11434 src/llama-graph.cpp, build_moe_ffn, wants their input in float32, and ggml-cuda refuses that.
DOWN_ON_PROCESSOR = frozenset({"mistral4"})


@dataclass(frozen=True)
class Reservation:
    """What one GPU takes. flat: bytes whatever its layers are. own: as it was said; None where a formula counts.

    bare: the same where no layer has experts of its own there. usual: layers that the GPU had that was asked about.
    """

    batch: BatchShape
    flat: float
    own: Reserved | None = None
    bare: Reserved | None = None
    usual: int = 0

    def bytes(self, layers: int, bare: bool) -> float:
        """Of so many layers."""
        found = self.bare if bare else self.own
        return self.flat + (found.bytes(self.batch, layers - self.usual) if found else 0.0)

    @property
    def layer(self) -> float:
        """Bytes that a layer adds at most."""
        return self.own.layer_bytes(self.batch) if self.own else 0.0


class Arrangement(NamedTuple):
    """How a model lies on GPUs. offloads: experts are in host memory. copies: the first GPU computes those."""

    gpus: int
    offloads: bool
    copies: bool

    def like(self, gpu: int) -> Position:
        """The place that was asked about and is like that of a GPU."""
        if self.gpus == 1:
            return "only"
        # Without copies the first one is like those behind it.
        if gpu == 0:
            return "first" if self.copies or not self.offloads else "middle"
        return "last" if gpu == self.gpus - 1 else "middle"


def reservations(
    model: Model, version: str, batch: BatchShape, kv_cache_type: str, arrangement: Arrangement
) -> list[Reservation]:
    """Of each GPU, without copies of experts, logits and what layers take for themselves.

    version: of llama.cpp.
    """
    found = buffers_of("llama.cpp", model, version)
    if found is None:
        pipelined = arrangement.gpus > 1 and not arrangement.offloads
        shaped = by_shape(model, batch, kv_cache_type, PIPELINE_COPIES if pipelined else 1)
        return [Reservation(batch, shaped)] * arrangement.gpus
    converted = _converted(model, batch, kv_cache_type)
    kinds: tuple[Hosted, Hosted] = ("some", "all") if arrangement.offloads else ("none", "none")
    if arrangement.gpus == 1 and not arrangement.copies:
        kinds = ("none", "none")
    rows = []
    for place in map(arrangement.like, range(arrangement.gpus)):
        own, bare = (found.places[place, kind] for kind in kinds)
        rows.append(Reservation(batch, converted, own, bare, asked_layers(model.layers, GPUS, place)))
    return rows


def expert_copies(model: Model, version: str) -> int:
    """How many copies of the largest matrix the first GPU holds where it computes experts of the host.

    By default one, and two where layers fold a sequence into a state, as nearly all such models do.
    """
    found = buffers_of("llama.cpp", model, version)
    return found.copies if found else 1 + any(entry.folds for entry in model.attention)


@lru_cache(maxsize=4096)
def by_shape(model: Model, batch: BatchShape, kv_cache_type: str, copies: int) -> float:
    """Bytes of llama.cpp's compute buffers on one GPU, but for the output's logits and copies of experts.

    copies: of a step's inputs, PIPELINE_COPIES where steps are pipelined, else 1. The attention mask in float16; where
    an indexer scores the tokens, its masks and scores; quantised K and V turned into float16 for the flash-attention
    kernels; the activations of one micro-batch.
    """
    cell = 2 * copies + max(entry.step_bytes(copies) for entry in model.attention)
    width = model.experts_per_token * (3 * model.expert_intermediate + 2 * model.hidden) + 3 * model.intermediate
    streams = model.residual_streams
    # The residual stream and the embeddings are inputs of a pipelined step; of several streams each is one, too.
    width += (3 if streams == 1 else 5) * copies * streams * model.hidden if copies > 1 else 0
    width += (6 if streams == 1 else 9) * streams * model.hidden + max(entry.folded_width for entry in model.attention)
    storage = Storage("llama.cpp", "f16")
    # Of a layer that folds sequences into states, those of all slots twice.
    states = 2 * batch.slots * max(sum(cache.state_bytes for cache in kept) for kept in layer_caches(model, storage))
    masks = batch.micro_batch * batch.context * cell
    return masks + _converted(model, batch, kv_cache_type) + states + 4.0 * batch.micro_batch * width


@lru_cache(maxsize=4096)
def layer_inputs(model: Model, batch: BatchShape, copies: int) -> tuple[float, ...]:
    """Bytes of what each layer takes on a GPU as an input of its own, of which a step has copies.

    A view of the mask (where the first GPU makes it: on all others), and what the processor has computed of experts.
    """
    taken = {number: entry.own_mask.bytes for entry in model.attention for number in entry.layers}
    returned = model.gguf_architecture in DOWN_ON_PROCESSOR and copies > 1
    down = 4.0 * model.experts_per_token * model.hidden if returned else 0.0
    return tuple(copies * batch.micro_batch * (taken[number] * batch.context + down) for number in range(model.layers))


def inputs_held(inputs: Sequence[float], shares: Sequence[float]) -> float:
    """Bytes of them that a GPU holds at once. inputs: of its layers. shares: of each one's experts on the host.

    Experts on the host end a split of the graph, so that the next layer's input may take the place of the one before.
    """
    own = [size for size, share in zip(inputs, shares, strict=True) if share < 1]
    return sum(own) if own else max(inputs)


def logits(model: Model, tokens: int) -> float:
    """Bytes of the logits of some tokens, on the GPU with the output head."""
    return 4.0 * tokens * model.vocab


def _converted(model: Model, batch: BatchShape, kv_cache_type: str) -> float:
    """Quantised keys and values of the largest layer, turned into float16."""
    if kv_cache_type in ("f16", "bf16"):
        return 0.0
    return max(layer_token_bytes(model, Storage("llama.cpp", "f16"))) * batch.context * batch.slots
