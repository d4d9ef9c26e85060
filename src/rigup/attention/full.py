"""Attention over every token before: keys and values of each, in grouped heads.

Sources: those of grouped_heads.py. Checked against logs: 65,536 tokens of MiniMax-M2.5 in f16 are 15,872 MiB
to the MiB.
"""

from typing import Literal

from rigup.attention.grouped_heads import GroupedHeads


class FullAttention(GroupedHeads):
    """Every token is kept."""

    kind: Literal["full"] = "full"
