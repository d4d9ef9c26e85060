"""`rigup status`: shows a line per service: build, checkpoint, health by a real request, drift."""

from __future__ import annotations

import argparse
import re
import time
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json, print_json_line
from rigup.cli.output.table import Column, Table
from rigup.cli.page.writing import check_page, write_html
from rigup.cli.sessions import session as hosts
from rigup.errors import InputError
from rigup.units import uptime_text

if TYPE_CHECKING:
    from rigup.cli.output.table import Table
    from rigup.run.inspection import Inspection
    from rigup.run.result import HostResult

EPILOG = """\
examples:
  rigup status                      show every host of the only inventory
  rigup status --limit gpu1.lan --json
  rigup status --watch 5            refresh in place every five seconds until Ctrl-C
  rigup status --html fleet.html    also write a page with memory, versions, drift, benchmarks and releases

exit codes: 0 every service is healthy and as planned (--watch: always), 1 one is not,
2 usage error or no host reachable, 130 cancelled
"""

WATCH_SECONDS = 10.0
NOT_LOADED = "not loaded"
SHORTEST_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, --watch and --html."""
    hosts.add_arguments(parser)
    parser.add_argument(
        "--watch",
        type=_seconds,
        nargs="?",
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help=f"refresh in place every {WATCH_SECONDS:g} seconds; with --json print one line per refresh",
    )
    parser.add_argument(
        "--html", metavar="FILE", help="also write a page about the fleet to FILE (- for standard output)"
    )


def _seconds(text: str) -> float | str:
    """Parses the word after --watch: a number, or the inventory, since the number is optional."""
    try:
        seconds = float(text)
    except ValueError:
        return text
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return max(seconds, SHORTEST_SECONDS)


def run(args: argparse.Namespace) -> int:
    """Asks every host and shows a line per service; repeats with --watch."""
    if isinstance(args.watch, str):
        if args.inventory is not None:
            raise InputError(f"--watch: {args.watch!r} is not a number of seconds", "pass a number, such as --watch 5")
        args.inventory, args.watch = args.watch, WATCH_SECONDS
    if args.html is not None:
        if args.watch is not None:
            raise InputError("--html cannot be combined with --watch", "run rigup status --html FILE from a timer")
        check_page(args)
    with hosts.open_inspection(args, lambda found: found.verify()) as inspected:
        if args.watch is not None:
            _watch(inspected, args.watch, args.json)
            return 0
        rows, results, gateways = _rows(inspected)
        if args.html is not None:
            from rigup.cli.page.collect import page_of

            page = page_of(inspected, rows, args.limit, gateways)
    from rigup.cli.output import results as summary
    from rigup.run.result import exit_code

    if args.json:
        print_json(status_as_json(rows, results, gateways))
    else:
        console = Console(stderr=args.html == "-")
        console.print(_view(rows, gateways), soft_wrap=True)
        summary.show_failed(results, console)
    if args.html is not None:
        write_html(args.html, page)
    return exit_code(results)


def _rows(inspected: Inspection) -> tuple[list[dict[str, Any]], list[HostResult], list[dict[str, Any]]]:
    from rigup.cli.output.status_rows import disabled_row, left_over_row, row, set_states, with_kernels
    from rigup.run.kernel_status import start_logs
    from rigup.run.measured_memory import rows as memory_rows

    inspected.note_drift()
    logs = start_logs(inspected.context)
    results = list(inspected.results.values())
    rows: list[dict[str, Any]] = []
    for result in results:
        drift = inspected.drift[result.host]
        for plan in inspected.plans[result.host]:
            logged = logs.get((result.host, plan.service.name))
            memory = memory_rows(plan, result.probe, logged or []) if result.probe and plan.memory else []
            rows.append(with_kernels(row(result, plan, drift) | {"memory": memory}, plan, logged))
        disabled = inspected.context.settings[result.host].disabled
        rows += [disabled_row(result, name, drift) for name in disabled]
        rows += [left_over_row(result, found) for found in drift if found.what == "not in the inventory"]
    set_states(results, rows)
    inspected.note_damage()
    gateways = []
    if any(settings.gateway for settings in inspected.context.settings.values()):
        from rigup.run.gateways.status import gateways_of

        gateways = gateways_of(inspected.context)
    return rows, results, gateways


def _view(rows: list[dict[str, Any]], gateways: list[dict[str, Any]]) -> Any:
    """The services, and below them the gateways."""
    if not gateways:
        return table(rows)
    from rigup.cli.output.gateways import gateway_table

    return Group(table(rows), "", gateway_table(gateways))


def status_as_json(
    rows: list[dict[str, Any]], results: list[HostResult], gateways: list[dict[str, Any]]
) -> dict[str, Any]:
    """The rows for scripts; schema 1. Errors are listed per host."""
    from rigup.cli.output.json_documents.runs import HostState

    return {"schema": 1, "hosts": [HostState.of(one) for one in results], "services": rows, "gateways": gateways}


def _watch(inspected: Inspection, seconds: float, as_json: bool) -> None:
    """Refreshes until Ctrl-C. If piped, prints each refresh below the last."""
    from rigup.connection.signals import ended_by_signals

    console = Console()
    in_place = console.is_terminal and not console.is_dumb_terminal
    with Live(console=console, auto_refresh=False, screen=False) as shown, ended_by_signals() as ended:
        while True:
            rows, results, gateways = _rows(inspected)
            if as_json:
                print_json_line(status_as_json(rows, results, gateways) | {"time": int(time.time())})
            else:
                errors = [error.message for result in results for error in result.errors]
                when = time.strftime(f"%H:%M:%S, refreshed every {seconds:g} s, press Ctrl-C to stop")
                view = Group(_view(rows, gateways), *(Text(text, "red") for text in errors), Text(when, "dim"))
                shown.update(view, refresh=True) if in_place else console.print(view, soft_wrap=True)
            if ended.wait(seconds):
                return
            inspected.refresh()


def table(rows: list[dict[str, Any]]) -> Table:
    """A row per service; red if not as planned."""
    from rigup.cli.output.status_rows import gpu_memory_text, with_restarts
    from rigup.run.result import HEALTHY

    table = Table(
        (
            Column("host", narrowest=16),
            Column("service", narrowest=10),
            Column("release", rank=5),
            Column("engine", rank=7),
            Column("checkpoint", rank=2, narrowest=20, middle=True),
            Column("unit", rank=4),
            Column("up", rank=3),
            Column("driver", rank=9, narrowest=14, optional=True),
            Column("gpu memory", rank=1, optional=True),
            Column("hottest", rank=6, optional=True),
            Column("planned", rank=10, optional=True),
            Column("moe config", rank=11, optional=True),
            Column("kernels", rank=12, narrowest=12, optional=True),
            Column("health"),
            Column("took", rank=8, right=True, optional=True),
            Column("drift", narrowest=16),
        )
    )
    for row in rows:
        took = f"{row['seconds']:.2f} s" if row.get("seconds") else ""
        release, unit = row.get("release"), with_restarts(row.get("unit") or "", row)
        known = (release and str(release), _engine(row), _checkpoint(row), unit, uptime_text(row.get("up_seconds")))
        figures = (row.get("driver"), gpu_memory_text(row), _temperature(row), _planned(row))
        kernels = (row.get("moe_config"), _kernels(row))
        fine = row["health"] in HEALTHY or row.get("stopped")
        style = "" if fine and row["drift"] == "none" else "red"
        first, *others = row.get("members") or [{"loaded": True}]
        health = row["health"] if first["loaded"] or row["health"] not in HEALTHY else NOT_LOADED
        answer = (health, took if first["loaded"] else "", row["drift"])
        table.add(row["host"], row["service"], *known, *figures, *kernels, *answer, style=style)
        for one in others:
            answers = (row["health"], took) if one["loaded"] else (NOT_LOADED, "")
            blank = [""] * (len(known) - 3 + len(figures) + len(kernels))
            table.add(row["host"], one["service"], "", "", _checkpoint(one), *blank, *answers, "", style=style)
    return table


def _engine(row: dict[str, Any]) -> str:
    """The build's name without its hash, which only `--json` shows."""
    return str(row.get("build") or "").rpartition("-")[0].replace("-", " ")


def _checkpoint(row: dict[str, Any]) -> str:
    checkpoint = row.get("checkpoint") or {}
    return f"{checkpoint.get('repo', '').rpartition('/')[2]} {checkpoint.get('quant', '')}".strip()


def _planned(row: dict[str, Any]) -> str:
    """Planned memory of the service's GPUs, and the error while it runs."""
    from rigup.run.measured_memory import percent_off, totals

    sums = totals(row.get("memory") or ()) if row.get("unit") == "active" else None
    return f"{sums[1] / 1024:.1f} GiB ({percent_off(*sums)})" if sums else ""


def _kernels(row: dict[str, Any]) -> str:
    """The kernels that the engine chose, in order of a step, without the parts of the model that they compute."""
    return ", ".join(dict.fromkeys(name for names in (row.get("kernels") or {}).values() for name in names))


def _temperature(row: dict[str, Any]) -> str:
    warm = row.get("gpu_temperature_c")
    return f"{warm} °C" if warm is not None else ""
