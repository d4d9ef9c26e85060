"""Multi-head latent attention (MLA) over every token before. Sources: those of latent_heads.py."""

from typing import Literal

from rigup.attention.latent_heads import LatentHeads


class Latent(LatentHeads):
    """Nothing but the latent vector is kept."""

    kind: Literal["latent"] = "latent"
