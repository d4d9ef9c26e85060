"""Grouped heads over blocks of tokens that an indexer picks (MiniMax M3): keys, values, and one index key a token.

Source: vLLM 0.33.0 models/minimax_m3/common/indexer.py: one head of index keys on every rank (num_kv_heads=1), in bf16
whatever the cache is in (config/attention.py: indexer_kv_dtype "auto"). SGLang 0.5.23 mem_cache/memory_pool.py,
MiniMaxSparseKVPool. llama.cpp b11434 src/llama-kv-cache-msa.cpp: an index key and a value of one KV head, which
nothing reads, both in the cache's type; models/minimax-m3.cpp: masks by position, scores and masks of each group in
float32, and a view of the mask for each layer.
"""

from typing import Literal

from rigup.attention.attention_class import MODEL_BYTES, Count, LayerCache, OwnMask, Storage
from rigup.attention.full import GroupedHeads


class BlockSparse(GroupedHeads):
    """index_dim: elements of the one index key of a token."""

    kind: Literal["block_sparse"] = "block_sparse"
    index_dim: Count

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """Tensor parallelism does not cut the index keys."""
        if storage.engine == "llama.cpp":
            width = self.index_dim + (self.value_dim or self.head_dim)
            return (*super().caches(storage), LayerCache(width * storage.element))
        return (*super().caches(storage), LayerCache(self.index_dim * MODEL_BYTES))

    @property
    def scores_tokens(self) -> bool:
        """An indexer picks them."""
        return True

    def step_bytes(self, copies: int) -> int:
        """A mask by position and the attention mask in float32, and one of each group."""
        return 4 * (copies + 2) + 4 * self.kv_heads + 2

    @property
    def own_mask(self) -> OwnMask:
        """In float32."""
        return OwnMask(4, made=True)

    @property
    def shape(self) -> str:
        """Heads, their width and that of the index key."""
        return f"{super().shape}, index of {self.index_dim}"
