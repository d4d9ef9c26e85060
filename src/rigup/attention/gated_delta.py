"""Gated delta net (Qwen3-Next, Qwen3.5 and later): linear attention with a matrix for each value head.

Sources: those of recurrent.py; vLLM 0.33.0 gated_delta_net_state_shape. Checked against a log: 161.0 requests of 8,192
tokens of Qwen3.5-397B on four ranks.
"""

from typing import Literal

from rigup.attention.attention_class import Count, PrefixStates
from rigup.attention.recurrent import Recurrent


class GatedDelta(Recurrent):
    """linear_num_key_heads, linear_num_value_heads, linear_key_head_dim and linear_value_head_dim of the config."""

    kind: Literal["gated_delta"] = "gated_delta"
    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count

    def state_elements(self, tensor: int) -> int:
        """A matrix of a key's and a value's width for each value head."""
        return self.value_heads * self.key_dim * self.value_dim // tensor

    def convolved(self, tensor: int) -> int:
        """Queries, keys and values."""
        return (2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim) // tensor

    @property
    def writes_prefixes(self) -> PrefixStates | None:
        """Source: gdn/qwen_gdn_linear_attn.py: FlashInfer's kernels alone, in chunks of as many tokens."""
        return PrefixStates("0.33.0", (9, 0), 64)

    def parameters(self, hidden: int) -> int:
        """Queries, keys, values, the output gate, two gates a head, the convolution and the output."""
        keys, values = self.key_heads * self.key_dim, self.value_heads * self.value_dim
        return hidden * (2 * keys + 3 * values + 2 * self.value_heads) + self.convolved(1) * self.convolution

    def activations(self, tensor: int) -> int:
        """Queries, keys, values and the output gate."""
        return self.convolved(tensor) + self.value_heads * self.value_dim // tensor

    @property
    def cut(self) -> dict[str, int]:
        """Key heads and value heads."""
        return {"key heads": self.key_heads, "value heads of linear attention": self.value_heads}

    @property
    def shape(self) -> str:
        """Heads and the state of one of them."""
        return f"{self.value_heads} heads, linear, state of {self.key_dim} x {self.value_dim}"
