"""One tensor as the header of a file names it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tensor:
    """A stored tensor: its dtype as the format writes it, its shape outermost first, and its bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    @property
    def elements(self) -> int:
        """How many numbers it stores; several packed into one count as one."""
        return math.prod(self.shape)
