"""`rigup status`: a line a service: what runs, whether it answers a real question, whether it is what the plan says."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rigup.cli import hosts

EPILOG = """\
examples:
  rigup status                      every host of the only inventory
  rigup status --limit gpu1.lan --json

exit codes: 0 every service answers and is what the plan says, 1 one does not, 2 could not ask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts."""
    hosts.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Asks every host and shows one line a service."""
    hosts.patch_for_many_hosts()
    from rich.console import Console

    from rigup.cli import live, summary
    from rigup.cli.status_rows import row, settle
    from rigup.fleet.result import exit_code
    from rigup.operations import progress

    _, opened = hosts.open_run(args)
    with opened as run, live.view() as view:
        progress.listen(view.show)
        run.connect(take_lease=False)
        run.verify()
    results = list(run.results.values())
    rows = [row(result, plan) for result in results for plan in run.plans[result.host]]
    settle(results, rows)
    if args.json:
        json.dump({"schema": 1, "services": rows}, sys.stdout, indent=1)
        print()
    else:
        console = Console()
        console.print(table(rows))
        summary.show_results([result for result in results if result.errors], console)
    return exit_code(results)


def table(rows: list[dict[str, Any]]) -> Any:
    """A line a service, with a column for the driver where some host has one; red where something is not as planned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    drivers = ("driver",) if any(row.get("driver") for row in rows) else ()
    for column in ("host", "service", "release", "engine", "checkpoint", "unit", *drivers, "health", "drift"):
        table.add_column(column, overflow="fold")
    for row in rows:
        health = row["health"] + (f" in {row['seconds']:.2f} s" if row.get("seconds") else "")
        driver = (row.get("driver"),) if drivers else ()
        cells = (row.get("release"), _engine(row), _checkpoint(row), row.get("unit"), *driver, health, row["drift"])
        style = None if row["health"] == "answers" and row["drift"] == "none" else "red"
        table.add_row(row["host"], row["service"], *(str(cell or "-") for cell in cells), style=style)
    return table


def _engine(row: dict[str, Any]) -> str:
    """The build's name without the hash, which `--json` has."""
    return str(row.get("build") or "").rpartition("-")[0].replace("-", " ")


def _checkpoint(row: dict[str, Any]) -> str:
    checkpoint = row.get("checkpoint") or {}
    return f"{checkpoint.get('repo', '').rpartition('/')[2]} {checkpoint.get('quant', '')}".strip()
