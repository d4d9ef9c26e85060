"""A colour for each host, so that merged lines can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan", "bright_green")


def host_colours(hosts: Sequence[str]) -> dict[str, str]:
    """By host, a colour of rich's; with many hosts they repeat."""
    return {host: COLOURS[number % len(COLOURS)] for number, host in enumerate(hosts)}
