"""Latent attention over the tokens that an indexer picks (DeepSeek sparse attention), which keeps a key of its own.

Sources: vLLM 0.33.0 models/deepseek_v2.py, DeepseekV32IndexerCache: 128 fp8 values and a float32 scale a token on each
layer with an indexer of its own (so do 0.25.1 and 0.29.0), and v1/attention/backends/mla/flashmla_sparse.py: 656 bytes
a token in fp8 (512 fp8 values, 4 float32 scales, 64 bf16 values), where its kernels do not take 576 fp8 values alone
(`[[unscaled_caches]]` of the engines). SGLang 0.5.23 keeps the same, and one key for as many tokens as index_kpool says
(mem_cache/memory_pool.py, model_executor/pool_configurator.py). llama.cpp b11434 src/llama-kv-cache-dsa.cpp: keys in
the cache's type, and only on layers with an indexer of their own: measured, 21 layers of GLM-5.2's 78. Where tokens
share a key, each has a key, a gate and the pooled key (src/llama-memory-hybrid-idx.cpp), and each layer a view of the
mask (models/glm5-next.cpp).
"""

from typing import Literal

from rigup.attention.attention_class import MODEL_BYTES, Count, LayerCache, OwnMask, Storage
from rigup.attention.latent import LatentHeads

_SCALE_BYTES = 4
_FP8_GROUP = 128
# llama.cpp b11434 src/llama-hparams.h, indexer_kpool_row.
_POOLED_ROWS = 3


class LatentIndexed(LatentHeads):
    """index_heads, index_dim: of the indexer. index_pool: tokens that share one of its keys (index_kpool).

    index_shared: the layer uses the picks of a layer before it.
    """

    kind: Literal["latent_indexed"] = "latent_indexed"
    index_heads: Count
    index_dim: Count
    index_pool: Count = 1
    index_shared: bool = False

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """The latent vector and the indexer's key, neither of them cut."""
        if storage.engine == "llama.cpp":
            kept = super().caches(storage)
            rows = _POOLED_ROWS if self.index_pool > 1 else 1
            return kept if self.index_shared else (*kept, LayerCache(rows * self.index_dim * storage.element))
        size = self.index_dim + _SCALE_BYTES * -(-self.index_dim // _FP8_GROUP)
        keys = () if self.index_shared else (LayerCache(size / self.index_pool, self.index_pool),)
        if storage.kv_cache_type != "fp8" or storage.unscaled:
            return (*super().caches(storage), *keys)
        scales = _SCALE_BYTES * -(-self.kv_rank // _FP8_GROUP)
        return (LayerCache(self.kv_rank + scales + self.rope_dim * MODEL_BYTES), *keys)

    def parameters(self, hidden: int) -> int:
        """Those of latent attention, the indexer's queries from the low rank, its one key head and its weights."""
        own = 0 if self.index_shared else 1
        index = self.index_heads * self.index_dim * (self.query_rank or hidden) + hidden * self.index_dim
        return super().parameters(hidden) + own * (index + hidden * self.index_heads)

    @property
    def scores_tokens(self) -> bool:
        """An indexer picks them."""
        return True

    def step_bytes(self, copies: int) -> int:
        """A mask and scores of its own; of pooled keys far fewer."""
        return 3 if self.index_pool > 1 else super().step_bytes(copies)

    @property
    def own_mask(self) -> OwnMask:
        """In float16, where keys are pooled."""
        return OwnMask(2) if self.index_pool > 1 else OwnMask()

    @property
    def shape(self) -> str:
        """Heads, what is kept of a token, and the indexer's key."""
        return f"{super().shape}, index of {self.index_dim}"
