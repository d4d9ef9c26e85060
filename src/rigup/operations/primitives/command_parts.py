"""Several commands asked as one fact: a marker ends the output of each. Several files: one begins each."""

from __future__ import annotations

from collections.abc import Iterable

PART_END = "##rigup-part##"
FILE_MARK = "##rigup-file##"
"""Before the path of a file, whose lines follow."""


def parts_of(output: Iterable[str]) -> list[list[str]]:
    """The lines of each command, in order; a last part for what follows the last marker."""
    parts: list[list[str]] = [[]]
    for line in output:
        if line == PART_END:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def files_of(output: Iterable[str]) -> dict[str, str]:
    """The texts of files by path, without surrounding white space; lines before the first file are ignored."""
    files: dict[str, list[str]] = {}
    for line in output:
        if line.startswith(FILE_MARK):
            files[line.removeprefix(FILE_MARK).strip()] = []
        elif files:
            files[next(reversed(files))].append(line)
    return {path: "\n".join(lines).strip() for path, lines in files.items()}
