"""Attention within chunks of the text (Llama 4): each token sees what comes before it in its own chunk.

Sources: vLLM 0.33.0 config/vllm.py: with chunked local attention the hybrid manager is off unless it is asked for, so
that these layers keep every token; rows of Llama-4-Maverick say the same. llama.cpp b11434 src/llama-model.cpp:
LLAMA_SWA_TYPE_CHUNKED with a cache of the chunk.
"""

from typing import Literal

from rigup.attention.attention_class import Count, LayerCache, Storage
from rigup.attention.full import GroupedHeads


class ChunkedLocal(GroupedHeads):
    """chunk: tokens of a chunk."""

    kind: Literal["chunked_local"] = "chunked_local"
    chunk: Count

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """As a full layer; llama.cpp keeps the last chunk only."""
        kept = super().caches(storage)
        return tuple(cache._replace(window=self.chunk) for cache in kept) if storage.engine == "llama.cpp" else kept

    @property
    def shape(self) -> str:
        """Heads, their width and the chunk."""
        return f"{super().shape}, chunks of {self.chunk:,}"
