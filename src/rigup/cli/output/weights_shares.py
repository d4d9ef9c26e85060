"""Shows how the hosts of a run shared weights: totals, per host, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from rigup.units import bytes_text

if TYPE_CHECKING:
    from rigup.run.runner import Run
    from rigup.run.weights.distribution import TransferSummary

HUB = "hub"


def show_foreseen(run: Run, console: Console) -> None:
    """Announces sharing before the confirmation, because it may install nginx and opens a port."""
    from rigup.run.weights.distribution import planned_sharing

    for group in planned_sharing(run.context):
        size = bytes_text(sum(file.size for file in group.checkpoint.files))
        giving = f", from {', '.join(group.complete)}" if group.complete else ""
        console.print(
            f"hosts share {group.checkpoint.repo} {group.checkpoint.quant} ({size}) over nginx: "
            f"to {', '.join(group.fetchers)}{giving}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def show(summaries: Sequence[TransferSummary], console: Console) -> None:
    """Prints a line per checkpoint, per receiving host and per fault."""
    for summary in summaries:
        what = f"{summary.repo} {summary.quant}, {bytes_text(summary.size)}, to {_hosts(len(summary.taken))}"
        came = _bytes(summary.hub_bytes, summary.lan_bytes)
        words = (
            f"shared weights of {what}: {came}"
            if summary.fetchers
            else f"{summary.repo} {summary.quant} was not shared"
        )
        console.print(words, markup=False, highlight=False, soft_wrap=True)
        for host, sources in summary.taken.items():
            hub = sources.get(HUB, 0)
            line = f"  {host}: {_bytes(hub, sum(sources.values()) - hub)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        for fault in summary.messages:
            console.print(f"  [yellow]{escape(fault)}[/]", highlight=False, soft_wrap=True)


def as_json(summaries: Sequence[TransferSummary]) -> list[dict[str, Any]]:
    """The shares for scripts."""
    return [
        {
            "repo": summary.repo,
            "quant": summary.quant,
            "bytes": summary.size,
            "fetched": list(summary.fetchers),
            "had": list(summary.complete),
            "hub_bytes": summary.hub_bytes,
            "lan_bytes": summary.lan_bytes,
            "taken": summary.taken,
            "faults": summary.messages,
        }
        for summary in summaries
    ]


def _bytes(hub: int, lan: int) -> str:
    return f"{bytes_text(hub)} from the hub, {bytes_text(lan)} from other hosts"


def _hosts(count: int) -> str:
    return "1 host" if count == 1 else f"{count} hosts"
