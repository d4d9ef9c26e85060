"""Words of a command line, put together in order, with the user's own flags laid over them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rigup.service import FlagValue

Options = dict[str, FlagValue]


def overlaid(options: Options, flags: Mapping[str, FlagValue]) -> Options:
    """The options with the user's flags over them: a flag replaces the option of its name, False removes it."""
    merged = {**options, **flags}
    return {name: value for name, value in merged.items() if value is not False}


def words(options: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """One word for each part of a command: True is a bare switch, a list follows its option, a dict becomes JSON."""
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
