"""Mamba (Jamba): a small state for each channel.

Sources: those of recurrent.py; vLLM 0.33.0 mamba1_state_shape.
"""

from typing import Literal

from rigup.attention.attention_class import Count
from rigup.attention.recurrent import Recurrent


class Mamba(Recurrent):
    """channels: hidden size x mamba_expand. state: mamba_d_state. step_rank: mamba_dt_rank."""

    kind: Literal["mamba"] = "mamba"
    channels: Count
    state: Count
    step_rank: Count

    def state_elements(self, tensor: int) -> int:
        """A vector for each channel."""
        return self.channels * self.state // tensor

    def convolved(self, tensor: int) -> int:
        """Every channel."""
        return self.channels // tensor

    def parameters(self, hidden: int) -> int:
        """Projections in (inputs and gate), to the step and the two vectors of the state, and out."""
        inner = self.channels * (self.step_rank + 2 * self.state) + self.step_rank * self.channels
        return 3 * hidden * self.channels + inner + self.channels * (self.state + self.convolution)

    def activations(self, tensor: int) -> int:
        """Inputs and gate."""
        return 2 * self.channels // tensor

    @property
    def cut(self) -> dict[str, int]:
        """Channels."""
        return {"Mamba channels": self.channels}

    @property
    def shape(self) -> str:
        """Channels and the state of one of them."""
        return f"{self.channels} channels, Mamba, state of {self.state}"
