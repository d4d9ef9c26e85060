"""llama.cpp's judge: a program that is compiled with each build for GPUs, from the files of this folder.

    rigup-judge sizes ARGUMENTS

It prints what model, context and buffers take of each card that the file named by RIGUP_CARDS describes (cards.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Card = tuple[int, int, str, bool, str]
"""MiB, MiB free, compute capability ("8.6"), whether it shares the host's memory, and its name."""


def sources() -> dict[str, str]:
    """The text of each file that it is compiled from, by name."""
    folder = Path(__file__).parent
    found = (path for path in folder.iterdir() if path.suffix == ".cpp" or path.name == "cuda_rules.py")
    return {path.name: path.read_text() for path in sorted(found)}


def cards_text(cards: Iterable[Card]) -> str:
    """The file that describes cards."""
    rows = ((mib, free, *capability.split("."), int(shared), name) for mib, free, capability, shared, name in cards)
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)
