"""Attention over the last tokens only, with heads of its own beside the full layers of the model.

Sources: vLLM 0.33.0 v1/kv_cache_interface.py, SlidingWindowSpec; SGLang 0.5.23 mem_cache/swa_memory_pool.py; llama.cpp
b11434 src/llama-kv-cache-iswa.cpp.
"""

from typing import Literal

from rigup.attention.attention_class import Count, LayerCache, Storage
from rigup.attention.full import GroupedHeads


class SlidingWindow(GroupedHeads):
    """window: tokens that a layer sees, its own included."""

    kind: Literal["sliding_window"] = "sliding_window"
    window: Count

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """As a full layer, of the last tokens."""
        return tuple(cache._replace(window=self.window) for cache in super().caches(storage))

    @property
    def shape(self) -> str:
        """Heads, their width and the window."""
        return f"{super().shape}, window {self.window:,}"
