"""Attention over every token before, with keys and values in grouped heads (GQA, MHA, MQA).

Sources: vLLM 0.33.0 v1/kv_cache_interface.py, FullAttentionSpec; SGLang 0.5.23 mem_cache/memory_pool.py,
MHATokenToKVPool; llama.cpp b11434 src/llama-kv-cache.cpp. Checked against logs: 65,536 tokens of MiniMax-M2.5 in f16
are 15,872 MiB to the MiB.
"""

from typing import Literal

from rigup.attention.attention_class import (
    AttentionClass,
    Count,
    CountOrNone,
    LayerCache,
    Storage,
    heads_on_rank,
)


class GroupedHeads(AttentionClass):
    """What layers with grouped heads have in common, whichever tokens they keep.

    heads, kv_heads, head_dim: as in the model's config. value_dim: where values are not as wide as keys.
    gated: the queries' projection makes an output gate as well. keys_are_values: values have no projection of their
    own; they are kept all the same. rope_dim: the part of a head that positions turn, where it is not the whole.
    """

    heads: Count
    kv_heads: Count
    head_dim: Count
    value_dim: Count | None = None
    gated: bool = False
    keys_are_values: bool = False
    rope_dim: CountOrNone | None = None

    @property
    def kv_width(self) -> int:
        """Elements of one KV head's key and value."""
        return self.head_dim + (self.value_dim or self.head_dim)

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """Tensor parallelism cuts the KV heads, down to one."""
        return (LayerCache(heads_on_rank(self.kv_heads, storage.tensor) * self.kv_width * storage.element),)

    def position_table(self, rows: int, element: int) -> tuple[str, int]:
        """A row of sines and cosines for each token, which layers of one kind share."""
        width = self.head_dim if self.rope_dim is None else self.rope_dim
        return f"{self.kind} {width}", rows * width * element

    def parameters(self, hidden: int) -> int:
        """q, k, v and o."""
        queries = self.heads * self.head_dim * (2 if self.gated else 1)
        keys = self.kv_heads * (self.head_dim if self.keys_are_values else self.kv_width)
        return hidden * (queries + keys + self.heads * (self.value_dim or self.head_dim))

    def activations(self, tensor: int) -> int:
        """Queries, keys and values."""
        return (self.heads * self.head_dim + self.kv_heads * self.kv_width) // tensor

    def divides(self, tensor: int) -> bool:
        """Attention heads come out whole, KV heads whole or repeated."""
        kv_heads = self.kv_heads
        kv_whole = kv_heads % tensor == 0 if tensor <= kv_heads else tensor % kv_heads == 0
        return self.heads % tensor == 0 and kv_whole

    def key_value_share(self, tensor: int) -> float:
        """Whole KV heads, one at least."""
        return heads_on_rank(self.kv_heads, tensor) / self.kv_heads

    @property
    def cut(self) -> dict[str, int]:
        """Attention heads and KV heads."""
        return {"attention heads": self.heads, "KV heads": self.kv_heads}

    @property
    def shape(self) -> str:
        """Heads and their width."""
        return f"{self.heads} heads, {self.kv_heads} KV heads of {self.head_dim}"


class FullAttention(GroupedHeads):
    """Every token is kept."""

    kind: Literal["full"] = "full"
