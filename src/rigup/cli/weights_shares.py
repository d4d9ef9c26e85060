"""How the hosts of a run shared weights: in all, by host, and what went wrong between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from rigup.units import bytes_text

if TYPE_CHECKING:
    from rigup.fleet.distribution import Tally
    from rigup.fleet.runner import Run

HUB = "hub"


def show_foreseen(run: Run, console: Console) -> None:
    """Who will share what, before anybody is asked whether to begin: it may install nginx, and opens a port."""
    from rigup.fleet.distribution import foreseen

    for swarm in foreseen(run):
        size = bytes_text(sum(file.size for file in swarm.checkpoint.files))
        giving = f", which {', '.join(swarm.complete)} {_have(swarm.complete)}" if swarm.complete else ""
        console.print(
            f"shared, over nginx: {swarm.checkpoint.repo} {swarm.checkpoint.quant}, {size}, "
            f"goes to {', '.join(swarm.fetchers)}{giving}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _have(hosts: Sequence[str]) -> str:
    return "has already" if len(hosts) == 1 else "have already"


def show(tallies: Sequence[Tally], console: Console) -> None:
    """A line for each checkpoint, one for each host that took of it, and one for each fault."""
    for tally in tallies:
        what = f"{tally.repo} {tally.quant}, {bytes_text(tally.size)}, to {_hosts(len(tally.taken))}"
        words = f"shared weights of {what}: {_bytes(tally.hub_bytes, tally.lan_bytes)}"
        console.print(words, markup=False, highlight=False, soft_wrap=True)
        for host, sources in tally.taken.items():
            hub = sources.get(HUB, 0)
            line = f"  {host}: {_bytes(hub, sum(sources.values()) - hub)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for fault in tally.told:
            console.print(f"  [yellow]{escape(fault)}[/]", highlight=False, soft_wrap=True)


def as_json(tallies: Sequence[Tally]) -> list[dict[str, Any]]:
    """The same for scripts."""
    return [
        {
            "repo": tally.repo,
            "quant": tally.quant,
            "bytes": tally.size,
            "fetched": list(tally.fetchers),
            "had": list(tally.complete),
            "hub_bytes": tally.hub_bytes,
            "lan_bytes": tally.lan_bytes,
            "taken": tally.taken,
            "faults": tally.told,
        }
        for tally in tallies
    ]


def _bytes(hub: int, lan: int) -> str:
    return f"{bytes_text(hub)} from the hub, {bytes_text(lan)} from other hosts"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
