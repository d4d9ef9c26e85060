"""Names of hosts in colours, so that merged lines can be told apart."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red", "bright_cyan", "bright_green")


def host_labels(hosts: Sequence[str]) -> dict[str, Text]:
    """By host, its name, as wide as the longest, in a colour; with many hosts the colours repeat."""
    widest = max(map(len, hosts), default=0)
    return {host: Text(f"{host:<{widest}}", COLOURS[number % len(COLOURS)]) for number, host in enumerate(hosts)}
