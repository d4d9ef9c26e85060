"""Combines options in order, overrides them with the user's flags, and turns them into words of a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rigup.service import FlagValue

Options = dict[str, FlagValue]


def overlaid(options: Options, flags: Mapping[str, FlagValue]) -> Options:
    """The options with the user's flags: a flag replaces the option of the same name, False removes it."""
    merged = {**options, **flags}
    return {name: value for name, value in merged.items() if value is not False}


def words(options: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """The words of a command: True is a bare switch, a list becomes several words, a dict becomes JSON."""
    found: list[str] = []
    for name, value in options.items():
        if value is False:
            continue
        found.append(name)
        if value is not True:
            found.extend(_texts(value))
    return tuple(found)


def _texts(value: FlagValue) -> list[str]:
    if isinstance(value, dict):
        return [json.dumps(value, separators=(",", ":"))]
    if isinstance(value, list):
        return [json.dumps(item) if isinstance(item, dict | list) else str(item) for item in value]
    return [str(value)]
