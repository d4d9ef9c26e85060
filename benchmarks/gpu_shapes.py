"""Models of full size for `bin/gpu-check`: their shapes, without weights.

Time and memory of an engine depend on shapes and types, not on values, so that the check fills the weights with what
comes. Sizes are those of the makers' config.json (Qwen/Qwen3-8B, Qwen3-32B, Qwen3-30B-A3B, MiniMaxAI/MiniMax-M2.5);
types are close to what a Q4_K_M file has, and Q8_0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rigup.layer_range import layer_numbers
from tests.tiny.checkpoint import Tensor, bytes_of, gguf_head


@dataclass(frozen=True)
class Shape:
    """A GGUF file: its metadata after the architecture's prefix, and its tensors, which name their layers."""

    name: str
    quant: str
    architecture: str
    vocab: int
    metadata: dict[str, int | float]
    rows: tuple[tuple[str, str, str, tuple[int, ...]], ...]

    @property
    def tensors(self) -> list[Tensor]:
        return [
            (name.replace("{}", str(number)), dtype, sizes)
            for name, layers, dtype, sizes in self.rows
            for number in (layer_numbers(layers) if layers else (0,))
        ]

    def head(self) -> bytes:
        """The file up to its tensors' data."""
        types = {int: "UINT32", float: "FLOAT32"}
        said: dict[str, Any] = {
            "general.architecture": (["STRING"], self.architecture),
            **{f"{self.architecture}.{key}": ([types[type(value)]], value) for key, value in self.metadata.items()},
            "general.file_type": (["UINT32"], 7 if self.quant == "Q8_0" else 15),
            "general.quantization_version": (["UINT32"], 2),
        }
        return gguf_head(self.name, said, self.tensors, self.vocab)

    def fillings(self) -> list[tuple[str, int]]:
        """What the data of each tensor is filled with, and its bytes; ones for what scales."""
        return [("ones" if "norm" in name else dtype, bytes_of(dtype, sizes)) for name, dtype, sizes in self.tensors]


def _transformer(
    name: str,
    quant: str,
    architecture: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    width: int,
    vocab: int,
    rope: float,
    experts: int = 0,
    norm_of_keys: int | None = None,
    more: dict[str, int | float] | None = None,
) -> Shape:
    """Grouped-query attention with norms of queries and keys; experts without a shared one, or a dense block.

    width: of an expert, where there are experts; norm_of_keys: elements of the norm of keys, for all heads together
    (and of queries in proportion) instead of one for each head.
    """
    small, large = ("Q8_0", "Q8_0") if quant == "Q8_0" else ("Q4_K", "Q6_K")
    every = f"0-{layers - 1}"
    norms = (head_dim, head_dim) if norm_of_keys is None else (heads * head_dim, norm_of_keys)
    rows: list[tuple[str, str, str, tuple[int, ...]]] = [
        ("token_embd.weight", "", small, (vocab, hidden)),
        ("output.weight", "", large, (vocab, hidden)),
        ("output_norm.weight", "", "F32", (hidden,)),
        ("blk.{}.attn_norm.weight", every, "F32", (hidden,)),
        ("blk.{}.attn_q.weight", every, small, (heads * head_dim, hidden)),
        ("blk.{}.attn_k.weight", every, small, (kv_heads * head_dim, hidden)),
        ("blk.{}.attn_v.weight", every, large, (kv_heads * head_dim, hidden)),
        ("blk.{}.attn_output.weight", every, small, (hidden, heads * head_dim)),
        ("blk.{}.attn_q_norm.weight", every, "F32", (norms[0],)),
        ("blk.{}.attn_k_norm.weight", every, "F32", (norms[1],)),
        ("blk.{}.ffn_norm.weight", every, "F32", (hidden,)),
    ]
    if experts:
        rows += [
            ("blk.{}.ffn_gate_inp.weight", every, "F32", (experts, hidden)),
            ("blk.{}.ffn_gate_exps.weight", every, small, (experts, width, hidden)),
            ("blk.{}.ffn_up_exps.weight", every, small, (experts, width, hidden)),
            ("blk.{}.ffn_down_exps.weight", every, small, (experts, hidden, width)),
        ]
    else:
        rows += [
            ("blk.{}.ffn_gate.weight", every, small, (width, hidden)),
            ("blk.{}.ffn_up.weight", every, small, (width, hidden)),
            ("blk.{}.ffn_down.weight", every, large, (hidden, width)),
        ]
    if architecture == "minimax-m2":
        rows += [("blk.{}.exp_probs_b.bias", every, "F32", (experts,))]
    metadata: dict[str, int | float] = {
        "block_count": layers,
        "context_length": 131072,
        "embedding_length": hidden,
        "feed_forward_length": width,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": rope,
    }
    if experts:
        metadata |= {"expert_count": experts, "expert_used_count": 8, "expert_feed_forward_length": width}
    return Shape(name, quant, architecture, vocab, metadata | (more or {}), tuple(rows))


QWEN3: dict[str, Any] = {"head_dim": 128, "vocab": 151936, "rope": 1e6}
SHAPES = (
    _transformer("Shape-Qwen3-8B", "Q8_0", "qwen3", layers=36, hidden=4096, heads=32, kv_heads=8, width=12288, **QWEN3),
    _transformer(
        "Shape-Qwen3-32B", "Q4_K_M", "qwen3", layers=64, hidden=5120, heads=64, kv_heads=8, width=25600, **QWEN3
    ),
    _transformer(
        "Shape-Qwen3-30B-A3B",
        "Q4_K_M",
        "qwen3moe",
        layers=48,
        hidden=2048,
        heads=32,
        kv_heads=4,
        width=768,
        experts=128,
        **QWEN3,
    ),
    # 14 of its 62 layers: all of them do not fit on one card
    _transformer(
        "Shape-MiniMax-M2.5",
        "Q4_K_M",
        "minimax-m2",
        layers=14,
        hidden=3072,
        heads=48,
        kv_heads=8,
        head_dim=128,
        width=1536,
        vocab=200064,
        rope=5e6,
        experts=256,
        norm_of_keys=1024,
        more={"rope.dimension_count": 64, "expert_gating_func": 2},
    ),
)
