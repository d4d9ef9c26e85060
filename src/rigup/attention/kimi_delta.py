"""Kimi delta attention (KDA): linear attention with a matrix for each head and a convolution for each projection.

Sources: those of recurrent.py; vLLM 0.33.0 kda_state_shape, and kda_state_dtype of 0.32.0: float32 unless a flag says
otherwise.
"""

from typing import Annotated, Literal

from pydantic import Field

from rigup.attention.attention_class import Count
from rigup.attention.recurrent import Recurrent


class KimiDelta(Recurrent):
    """num_heads and head_dim of the config's linear_attn_config. full_rank_gate: its use_full_rank_gate."""

    kind: Literal["kimi_delta"] = "kimi_delta"
    state_bits: Annotated[int, Field(ge=8, le=32)] = 32
    heads: Count
    head_dim: Count
    full_rank_gate: bool = False

    def state_elements(self, tensor: int) -> int:
        """A square matrix for each head."""
        return self.heads * self.head_dim * self.head_dim // tensor

    def convolved(self, tensor: int) -> int:
        """Queries, keys and values."""
        return 3 * self.heads * self.head_dim // tensor

    def parameters(self, hidden: int) -> int:
        """q, k, v and o, two gates (of low rank unless said otherwise), one weight a head, the convolutions."""
        width = self.heads * self.head_dim
        low_rank = self.head_dim * (hidden + width)
        gates = low_rank + (hidden * width if self.full_rank_gate else low_rank)
        return 4 * hidden * width + gates + hidden * self.heads + self.convolved(1) * self.convolution

    def activations(self, tensor: int) -> int:
        """Queries, keys, values and the gates."""
        return 5 * self.heads * self.head_dim // tensor

    @property
    def cut(self) -> dict[str, int]:
        """Heads."""
        return {"heads of linear attention": self.heads}

    @property
    def shape(self) -> str:
        """Heads and the state of one of them."""
        return f"{self.heads} heads, linear, state of {self.head_dim} x {self.head_dim}"
