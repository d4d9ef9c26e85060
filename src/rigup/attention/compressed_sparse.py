"""Compressed sparse attention (DeepSeek V4 and V4.1): one shared KV head, one entry for several tokens beside a window.

Sources: vLLM 0.33.0 v1/attention/backends/mla/flashmla_sparse.py, docstring: 584 bytes an entry (448 fp8 values, 64
bf16 values, 7 scales and one byte of padding), and models/deepseek_v4/attention.py: one entry for as many tokens as
compress_ratios of the config says, and the indexer of layers with a ratio of 4 on the same entries. The window and what
the compressor remembers of unfinished entries come on top. vLLM takes fp8_ds_mla for "auto". llama.cpp b11434
src/llama-kv-cache-dsv4.cpp: everything in the cache's type, without scales; the state of layers with an indexer has
rows for the entry before, too. V4.1 has entries on a few layers only, which the others share (kv_source_layer_ids,
index_source_layer_ids); vLLM 0.33.0 models/deepseek_v41 has records of 528 bytes, which are counted as V4's.
"""

from typing import Literal

from rigup.attention.attention_class import MODEL_BYTES, AttentionClass, Count, CountOrNone, LayerCache, Page, Storage

_SCALE_BYTES = 4
_FP8_GROUP = 64
_INDEX_GROUP = 128
_FLOAT_BYTES = 4
# Of vLLM's and SGLang's pages.
_ALIGNMENT = 576
_WINDOW_TOKENS, _ENTRY_TOKENS, _STATE_TOKENS = 64, 256, 8
# Of SGLang's pages, with as many tokens as vLLM's entries: rows that overlapping compression remembers, values of one.
_REMEMBERED_ROWS, _ROW_VALUES = 8, 4


class CompressedSparse(AttentionClass):
    """heads share one key of `head_dim`, of which `rope_dim` are kept in bf16; it is the value as well.

    ratio: tokens of one entry, 0 for layers with the window alone. index_heads, index_dim: of the indexer, 0 without.
    query_rank, output_rank, output_groups: q_lora_rank, o_lora_rank and o_groups of the config. shared: the entries are
    those of a layer before it.
    """

    kind: Literal["compressed_sparse"] = "compressed_sparse"
    heads: Count
    head_dim: Count
    rope_dim: Count
    window: Count
    ratio: CountOrNone = 0
    index_heads: CountOrNone = 0
    index_dim: CountOrNone = 0
    query_rank: Count
    output_rank: Count
    output_groups: Count
    shared: bool = False

    @property
    def step_is_known(self) -> bool:
        """No: logs have steps of 512 tokens, and the indexer's scores grow with step and context (llama.cpp#25468)."""
        return not self.index_dim

    def _entry(self, storage: Storage) -> float:
        if storage.engine == "llama.cpp":
            return self.head_dim * storage.element
        if storage.engine == "sglang" and storage.kv_cache_type != "fp8":
            return self.head_dim * MODEL_BYTES
        narrow = self.head_dim - self.rope_dim
        return narrow + self.rope_dim * MODEL_BYTES + -(-narrow // _FP8_GROUP) + 1

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """The window, the entries, the indexer's keys and the compressor's state; none of them is cut."""
        if storage.engine == "sglang":
            return self._in_sglang(self._entry(storage))
        entry = self._entry(storage)
        kept = [LayerCache(entry, window=self.window)]
        if not self.ratio:
            return tuple(kept)
        if not self.shared:
            kept.append(LayerCache(entry / self.ratio, self.ratio))
        # Overlapping compression looks at two entries' worth of tokens: keys and weights of each, in float32.
        spanned = 2 * self.ratio if self.index_dim else self.ratio
        ggml = storage.engine == "llama.cpp"
        rows = 2 * spanned * (2 if ggml and self.index_dim else 1)
        state = 0.0 if self.shared else rows * self.head_dim * _FLOAT_BYTES
        if self.index_dim:
            scales = _SCALE_BYTES * -(-self.index_dim // _INDEX_GROUP)
            key = self.index_dim * storage.element if ggml else self.index_dim + scales
            kept.append(LayerCache(key / self.ratio, self.ratio))
            state += rows * self.index_dim * _FLOAT_BYTES
        return (*kept, LayerCache(state_bytes=state)) if state else tuple(kept)

    def _in_sglang(self, entry: float) -> tuple[LayerCache, ...]:
        """What SGLang keeps, in pages whose sizes are whole units of its alignment.

        Source: SGLang 0.5.23 model_executor/pool_configurator.py, DSV4PoolConfigurator, and
        mem_cache/deepseek_v4_memory_pool.py: what the compressor remembers lies beside the window where entries
        overlap, else with each request.
        """
        window = _aligned(_ENTRY_TOKENS * entry) / _ENTRY_TOKENS
        if not self.ratio:
            return (LayerCache(window, window=self.window),)
        if self.index_dim:
            row = _ROW_VALUES * (self.head_dim + self.index_dim) * _FLOAT_BYTES
            window += _REMEMBERED_ROWS / _ENTRY_TOKENS * row
        kept = [LayerCache(window, window=self.window)]
        if not self.shared:
            slots = max(1, _ENTRY_TOKENS // self.ratio)
            kept.append(LayerCache(_aligned(slots * entry) / slots / self.ratio, self.ratio))
        if self.index_dim:
            key = self.index_dim + _SCALE_BYTES * -(-self.index_dim // _INDEX_GROUP)
            kept.append(LayerCache(key / self.ratio, self.ratio))
        elif not self.shared:
            kept.append(LayerCache(state_bytes=2 * self.ratio * self.head_dim * _FLOAT_BYTES))
        return tuple(kept)

    def pages(self, storage: Storage) -> tuple[Page, ...]:
        """vLLM's, each in whole units of its alignment.

        Source: vLLM 0.33.0 models/deepseek_v4/attention.py (get_kv_cache_spec) and compressor.py: windows in blocks of
        64 tokens, entries of 256, what the compressor remembers of 4 tokens where entries overlap, else of 8.
        """
        entry, overlap = self._entry(storage), 2 if self.index_dim else 1
        kept = [Page(_WINDOW_TOKENS, _aligned(_WINDOW_TOKENS * entry), self.window)]
        if not self.ratio:
            return tuple(kept)
        entries, spanned = _ENTRY_TOKENS // self.ratio, self.ratio * overlap
        remembered = _STATE_TOKENS // overlap
        row = 2 * overlap * _FLOAT_BYTES
        if not self.shared:
            kept.append(Page(_ENTRY_TOKENS, _aligned(entries * entry)))
            kept.append(Page(remembered, _aligned(remembered * row * self.head_dim), spanned))
        if self.index_dim:
            key = self.index_dim + _SCALE_BYTES * -(-self.index_dim // _INDEX_GROUP)
            kept.append(Page(_ENTRY_TOKENS, _aligned(entries * key)))
            kept.append(Page(remembered, _aligned(remembered * row * self.index_dim), spanned))
        return tuple(kept)

    def position_table(self, rows: int, element: int) -> tuple[str, int]:
        """One for layers with entries and one for those without, in float32: vLLM 0.33.0 models/deepseek_v4."""
        return "entries" if self.ratio else "window", rows * self.rope_dim * _FLOAT_BYTES

    def parameters(self, hidden: int) -> int:
        """Queries by way of the low rank, the shared key, the output by groups, compressor and indexer."""
        queries = self.query_rank * (hidden + self.heads * self.head_dim)
        output = self.heads * self.head_dim * self.output_rank + self.output_groups * self.output_rank * hidden
        overlap = 2 if self.index_dim else 1
        compressor = 2 * overlap * hidden * self.head_dim if self.ratio and not self.shared else 0
        indexer = self.query_rank * self.index_heads * self.index_dim + hidden * self.index_heads
        indexer += 2 * overlap * hidden * self.index_dim
        return queries + hidden * self.head_dim + output + compressor + (indexer if self.index_dim else 0)

    def step_bytes(self, copies: int) -> int:
        """A mask of the entries, in float16."""
        return 2

    def activations(self, tensor: int) -> int:
        """Queries of the rank's heads and the shared key."""
        return self.heads * self.head_dim // tensor + self.head_dim

    @property
    def cut(self) -> dict[str, int]:
        """Heads and output groups."""
        return {"attention heads": self.heads, "groups": self.output_groups}

    @property
    def divided(self) -> str:
        """What must come out whole, for people."""
        return f"{self.heads} attention heads in {self.output_groups} groups"

    @property
    def shape(self) -> str:
        """Heads, the shared key, and how many tokens one entry stands for."""
        entry = f", one entry for {self.ratio} tokens" if self.ratio else ""
        return f"{self.heads} heads, one key of {self.head_dim}, window {self.window:,}{entry}"


def _aligned(size: float) -> int:
    return int(-(-size // _ALIGNMENT)) * _ALIGNMENT
