"""Mamba 2 (Nemotron-H, Granite 4): a state for each head, groups that share their inputs.

Sources: those of recurrent.py; vLLM 0.33.0 mamba2_state_shape: groups that a rank count does not divide are repeated.
"""

from typing import Literal

from rigup.attention.attention_class import Count, PrefixStates, heads_on_rank
from rigup.attention.recurrent import Recurrent


class Mamba2(Recurrent):
    """heads, head_dim: mamba_num_heads and mamba_head_dim of the config. state: ssm_state_size. groups: n_groups."""

    kind: Literal["mamba2"] = "mamba2"
    heads: Count
    head_dim: Count
    state: Count
    groups: Count

    def state_elements(self, tensor: int) -> int:
        """A matrix of a head's width and the state for each head."""
        return self.heads * self.head_dim * self.state // tensor

    def convolved(self, tensor: int) -> int:
        """The heads' inputs, and two vectors of the state's width for each group."""
        return self.heads * self.head_dim // tensor + 2 * heads_on_rank(self.groups, tensor) * self.state

    @property
    def writes_prefixes(self) -> PrefixStates | None:
        """Source: layers/mamba/mamba_mixer2.py, get_kv_cache_spec."""
        return PrefixStates("0.32.0", (0, 0))

    def parameters(self, hidden: int) -> int:
        """Projections in (gate, inputs, two vectors a group, a step a head) and out, and the convolution."""
        inner, shared = self.heads * self.head_dim, 2 * self.groups * self.state
        return hidden * (2 * inner + shared + self.heads) + inner * hidden + (inner + shared) * self.convolution

    def activations(self, tensor: int) -> int:
        """Gate, inputs and the groups' vectors."""
        return self.convolved(tensor) + self.heads * self.head_dim // tensor

    @property
    def cut(self) -> dict[str, int]:
        """Heads."""
        return {"Mamba heads": self.heads}

    @property
    def shape(self) -> str:
        """Heads and the state of one of them."""
        return f"{self.heads} heads, Mamba 2, state of {self.head_dim} x {self.state}"
