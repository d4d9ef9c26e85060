"""`rigup status`: a line a service: what runs, whether it answers a real question, whether it is what the plan says."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.fleet.examination import Examination
    from rigup.fleet.result import HostResult

EPILOG = """\
examples:
  rigup status                      every host of the only inventory
  rigup status --limit gpu1.lan --json
  rigup status --watch 5            again every five seconds, in place, until Ctrl-C
  rigup status --html fleet.html    also a page: memory, versions, drift, benchmarks, releases; - prints it

exit codes: 0 every service answers and is what the plan says, 1 one does not, 2 could not ask; of --watch: 0
"""

WATCH_SECONDS = 10.0
SHORTEST_SECONDS = 0.2
PIPED_WIDTH = 240


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts, and --watch."""
    hosts.add_arguments(parser)
    parser.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"refresh in place, every {WATCH_SECONDS:g} seconds; with --json one line a refresh",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page about the fleet; - for standard output")


def _seconds(text: str) -> float | str:
    """What follows --watch: a number, or the inventory, since the number may be left out."""
    try:
        seconds = float(text)
    except ValueError:
        return text
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds")
    return max(seconds, SHORTEST_SECONDS)


def run(args: argparse.Namespace) -> int:
    """Asks every host and shows one line a service; again and again with --watch."""
    from rigup.cli.examining import examination

    if isinstance(args.watch, str):
        if args.inventory is not None:
            raise InputError(f"--watch: {args.watch} is no number of seconds", "e.g. --watch 5")
        args.inventory, args.watch = args.watch, WATCH_SECONDS
    if args.html is not None:
        from rigup.cli.page import status_page

        status_page.check(args)
    with examination(args, lambda found: found.verify(), services_answer=True) as examined:
        if args.watch is not None:
            _watch(examined, args.watch, args.json)
            return 0
        rows, results = _rows(examined)
        page = status_page.page_of(examined, rows, args.limit) if args.html is not None else ""
    from rich.console import Console

    from rigup.cli import summary
    from rigup.fleet.result import exit_code

    if args.json:
        json.dump(said_as_json(rows, results), sys.stdout, indent=1)
        print()
    else:
        beside = args.html == "-"
        terminal = (sys.stderr if beside else sys.stdout).isatty()
        console = Console(width=None if terminal else PIPED_WIDTH, stderr=beside)
        console.print(table(rows))
        summary.show_results([result for result in results if result.errors], console)
    if args.html is not None:
        status_page.write(args.html, page)
    return exit_code(results)


def _rows(examined: Examination) -> tuple[list[dict[str, Any]], list[HostResult]]:
    from rigup.cli.status_rows import left_over_row, row, settle, with_kernels
    from rigup.fleet.kernels import kernels_of
    from rigup.fleet.measured_memory import memory_of

    examined.note_drift()
    kernels, memory = kernels_of(examined), memory_of(examined)
    results = list(examined.results.values())
    rows: list[dict[str, Any]] = []
    for result in results:
        drift = examined.drift[result.host]
        for plan in examined.plans[result.host]:
            said = kernels.get((result.host, plan.service.name))
            measured = {"memory": memory.get((result.host, plan.service.name), [])}
            rows.append(with_kernels(row(result, plan, drift) | measured, plan, said))
        rows += [left_over_row(result, found) for found in drift if found.what == "not in the inventory"]
    settle(results, rows)
    return rows, results


def said_as_json(rows: list[dict[str, Any]], results: list[HostResult]) -> dict[str, Any]:
    """The same for scripts; schema 1. A host has its errors: a service's line has room for no reason."""
    hosts = [
        {
            "host": result.host,
            "state": {"pending": "unchanged"}.get(result.state, result.state),
            "errors": [{"message": error.message, "hint": error.hint} for error in result.errors],
        }
        for result in results
    ]
    return {"schema": 1, "hosts": hosts, "services": rows}


def _watch(examined: Examination, seconds: float, as_json: bool) -> None:
    """Until Ctrl-C. Piped, each refresh follows the last one."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from rigup.fleet.interrupt import ended_by_signals

    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    with Live(console=console, auto_refresh=False, screen=False) as shown, ended_by_signals() as ended:
        while True:
            rows, results = _rows(examined)
            if as_json:
                print(json.dumps(said_as_json(rows, results) | {"time": int(time.time())}), flush=True)
            else:
                errors = [error.message for result in results for error in result.errors]
                when = time.strftime(f"%H:%M:%S, again every {seconds:g} s, Ctrl-C ends")
                view = Group(table(rows), *(Text(text, "red") for text in errors), Text(when, "dim"))
                shown.update(view, refresh=True) if console.is_terminal else console.print(view)
            if ended.wait(seconds):
                return
            examined.refresh()


def table(rows: list[dict[str, Any]]) -> Any:
    """A line a service, with columns for the driver and the GPUs where some host has them; red where not as planned."""
    from rich.markup import escape
    from rich.table import Table

    from rigup.fleet.result import HEALTHY

    table = Table(box=None, pad_edge=False)
    drivers = ("driver",) if any(row.get("driver") for row in rows) else ()
    gpus = ("gpu memory", "hottest") if any(row.get("gpu_memory_mib") for row in rows) else ()
    planned = ("planned",) if any(_planned(row) for row in rows) else ()
    kernels = ("moe config",) if any(row.get("moe_config") for row in rows) else ()
    columns = ("host", "service", "release", "engine", "checkpoint", "unit", "up", *drivers, *gpus, *planned, *kernels)
    for column in (*columns, "health", "drift"):
        table.add_column(column, overflow="fold")
    for row in rows:
        health = row["health"] + (f" in {row['seconds']:.2f} s" if row.get("seconds") else "")
        driver = (row.get("driver"),) if drivers else ()
        figures = (_gpu_memory(row), _temperature(row)) if gpus else ()
        known = (row.get("release"), _engine(row), _checkpoint(row), row.get("unit"), uptime(row.get("up_seconds")))
        style = None if row["health"] in HEALTHY and row["drift"] == "none" else "red"
        kernel = (row.get("moe_config"),) if kernels else ()
        beside = (_planned(row),) if planned else ()
        cells = (row["host"], row["service"], *known, *driver, *figures, *beside, *kernel, health, row["drift"])
        table.add_row(*(escape(str(cell or "-")) for cell in cells), style=style)
    return table


def _engine(row: dict[str, Any]) -> str:
    """The build's name without the hash, which `--json` has."""
    return str(row.get("build") or "").rpartition("-")[0].replace("-", " ")


def _checkpoint(row: dict[str, Any]) -> str:
    checkpoint = row.get("checkpoint") or {}
    return f"{checkpoint.get('repo', '').rpartition('/')[2]} {checkpoint.get('quant', '')}".strip()


def _gpu_memory(row: dict[str, Any]) -> str:
    used, there = row.get("gpu_memory_used_mib"), row.get("gpu_memory_mib")
    return f"{(used or 0) / 1024:.1f} of {there / 1024:.1f} GiB" if there else ""


def _planned(row: dict[str, Any]) -> str:
    """What the plan has for the service's GPUs, and how far off that is while it runs."""
    from rigup.fleet.measured_memory import off, together

    sums = together(row.get("memory") or ()) if row.get("unit") == "active" else None
    return f"{sums[1] / 1024:.1f} GiB ({off(*sums)})" if sums else ""


def _temperature(row: dict[str, Any]) -> str:
    warm = row.get("gpu_temperature_c")
    return f"{warm} °C" if warm is not None else ""


def uptime(seconds: int | None) -> str:
    """An uptime in its two largest units."""
    if seconds is None:
        return ""
    for unit, size, smaller, small in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            return f"{seconds // size}{unit} {seconds % size // small}{smaller}"
    return f"{seconds}s"
