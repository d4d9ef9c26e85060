"""A model: the shape of an architecture, and figures that follow from the shape alone."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rigup.units import Frozen

Size = Annotated[int, Field(ge=1)]
SizeOrNone = Annotated[int, Field(ge=0)]


class Model(Frozen):
    """One published model. `sources` has the source of every figure, by field name.

    layers, hidden, heads, kv_heads, head_dim, vocab: as in the model's config.
    context: the longest position that the model supports, in tokens.
    experts, experts_per_token, expert_intermediate, shared_experts: the mixture of experts; `experts` 0 is a
    dense model.
    dense_layers, intermediate: feed-forward layers without experts, and their width.
    index_head_dim, index_layers: size of the one key head that a sparse-attention indexer keeps for each token, and how
    many layers have an indexer; 0 without.
    reference_bits: bits per weight of the maker's own checkpoint; more bits do not add quality.
    sampling: the maker's recommendation. license_note: what a user must know before serving it, "" if nothing.
    """

    name: str
    family: str
    architecture: str = ""
    layers: Size
    hidden: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    vocab: Size
    context: Size
    experts: SizeOrNone = 0
    experts_per_token: SizeOrNone = 0
    expert_intermediate: SizeOrNone = 0
    shared_experts: SizeOrNone = 0
    dense_layers: SizeOrNone = 0
    intermediate: SizeOrNone = 0
    index_head_dim: SizeOrNone = 0
    index_layers: SizeOrNone = 0
    tied_embeddings: bool = False
    parameters: Size
    active_parameters: Size
    reference_bits: Annotated[float, Field(gt=0)] = 16
    license: str = ""
    commercial: bool = True
    license_note: str = ""
    sampling: dict[str, float] = {}
    system_prompt: str = ""
    sources: dict[str, str] = {}

    def __hash__(self) -> int:
        """Hashes the name, which is unique in a catalogue, because the tables of sources are not hashable."""
        return hash(self.name)

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embeddings; the output head has as many, unless it is tied to them."""
        return self.vocab * self.hidden

    @property
    def attention_parameters(self) -> int:
        """Weights of q, k, v and o in one layer."""
        return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert: gate, up and down."""
        return 3 * self.hidden * self.expert_intermediate

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def kv_elements(self) -> int:
        """Elements of the KV cache for one token in one layer."""
        return 2 * self.kv_heads * self.head_dim
