"""Several commands asked as one fact: a marker ends the output of each."""

from __future__ import annotations

from collections.abc import Iterable

PART_END = "##rigup-part##"


def parts_of(output: Iterable[str]) -> list[list[str]]:
    """The lines of each command, in order; a last part for what follows the last marker."""
    parts: list[list[str]] = [[]]
    for line in output:
        if line == PART_END:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts
