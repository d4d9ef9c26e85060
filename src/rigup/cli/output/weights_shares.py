"""Shows how the hosts of a run shared weights: totals, per host, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rigup.cli.output.lines import Lines
from rigup.units import bytes_text

if TYPE_CHECKING:
    from rigup.run.runner import Run
    from rigup.run.weights.distribution import TransferSummary

HUB = "hub"


def show_foreseen(run: Run, out: Lines) -> None:
    """Announces sharing before the confirmation, because it may install nginx and opens a port."""
    from rigup.run.weights.distribution import planned_sharing

    for group in planned_sharing(run.context):
        size = bytes_text(sum(file.size for file in group.checkpoint.files))
        giving = f", from {', '.join(group.complete)}" if group.complete else ""
        what = f"{group.checkpoint.repo} {group.checkpoint.quant} ({size})"
        out.say(f"hosts share {what} over nginx: to {', '.join(group.fetchers)}{giving}")


def show(summaries: Sequence[TransferSummary], out: Lines) -> None:
    """Prints a line per checkpoint, per receiving host and per fault."""
    for summary in summaries:
        what, count = f"{summary.repo} {summary.quant}", len(summary.taken)
        to = f"{bytes_text(summary.size)}, to {count} host{'' if count == 1 else 's'}"
        came = _bytes(summary.hub_bytes, summary.lan_bytes)
        out.say(f"shared weights of {what}, {to}: {came}" if summary.fetchers else f"{what} was not shared")
        for host, sources in summary.taken.items():
            hub = sources.get(HUB, 0)
            out.say(f"  {host}: {_bytes(hub, sum(sources.values()) - hub)}")
        for fault in summary.messages:
            out.say("  ", (fault, "yellow"))


def _bytes(hub: int, lan: int) -> str:
    return f"{bytes_text(hub)} from the hub, {bytes_text(lan)} from other hosts"
