"""Multi-head latent attention (MLA): all heads share one compressed vector a token, which is whole on every rank.

Sources: vLLM 0.33.0 v1/kv_cache_interface.py, MLAAttentionSpec (one head of kv_lora_rank + qk_rope_head_dim); SGLang
0.5.23 mem_cache/memory_pool.py, MLATokenToKVPool; llama.cpp b11434 src/llama-kv-cache.cpp: no V for MLA (b5331 still
kept 512 values more). Measured: 70,272 bytes a token of DeepSeek-R1 in bf16 on each of eight ranks.
"""

from typing import Literal

from rigup.attention.attention_class import AttentionClass, Count, CountOrNone, LayerCache, Storage

# vLLM 0.33.0 platforms/interface.py: what TRTLLM's and FlashInfer's decode kernels for MLA want.
_PAGE_TOKENS = 128


class LatentHeads(AttentionClass):
    """heads; kv_rank, rope_dim: kv_lora_rank and qk_rope_head_dim of the config, both kept of each token.

    query_rank: q_lora_rank, 0 for none. nope_dim, value_dim: qk_nope_head_dim, v_head_dim. gated: an output gate.
    """

    heads: Count
    kv_rank: Count
    rope_dim: CountOrNone
    query_rank: CountOrNone = 0
    nope_dim: Count
    value_dim: Count
    gated: bool = False

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """Not cut by tensor parallelism."""
        return (LayerCache((self.kv_rank + self.rope_dim) * storage.element, page_tokens=_PAGE_TOKENS),)

    def position_table(self, rows: int, element: int) -> tuple[str, int]:
        """One for all layers."""
        return "latent", rows * self.rope_dim * element

    def parameters(self, hidden: int) -> int:
        """The two projections down, those up, and o."""
        width = self.nope_dim + self.rope_dim
        rank = self.query_rank
        queries = rank * (hidden + self.heads * width) if rank else hidden * self.heads * width
        latent = hidden * (self.kv_rank + self.rope_dim) + self.kv_rank * self.heads * (self.nope_dim + self.value_dim)
        return queries + latent + hidden * self.heads * self.value_dim * (2 if self.gated else 1)

    def activations(self, tensor: int) -> int:
        """Queries, and keys and values as they are unfolded for a prompt."""
        return self.heads * (2 * (self.nope_dim + self.rope_dim) + self.value_dim) // tensor

    @property
    def folded_width(self) -> int:
        """Queries and outputs of all heads."""
        return self.heads * (2 * self.kv_rank + self.rope_dim)

    @property
    def cut(self) -> dict[str, int]:
        """Only attention heads."""
        return {"attention heads": self.heads}

    @property
    def shape(self) -> str:
        """Heads and what is kept of a token."""
        return f"{self.heads} heads, latent of {self.kv_rank} + {self.rope_dim}"


class Latent(LatentHeads):
    """Nothing but the latent vector is kept."""

    kind: Literal["latent"] = "latent"
