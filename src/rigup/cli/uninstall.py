"""`rigup uninstall`: removes from a host all that rigup has put there."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from rigup.cli.sessions import unplanned
from rigup.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from rigup.project.inventory import Project
    from rigup.run.whole_hosts.uninstall import UninstallRun

EPILOG = """\
examples:
  rigup uninstall gpu1.lan               show what goes and what stays, ask, remove it
  rigup uninstall gpu1.lan --weights     the checkpoints as well
  rigup uninstall gpu1.lan --yes --json

Gateways send its services no more requests, and those in flight end first. The driver, installed packages and their
pins stay, and weights without --weights. Take the host out of the inventory, too: otherwise the next rigup apply
installs everything again. To see who removed it: rigup log HOST --here

exit codes: 0 removed, or nothing there, 1 failed, or declined, 2 usage error or host not reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds HOST, --weights, --yes and the arguments of every verb that needs no plan, without --limit."""
    parser.add_argument("limit", metavar="HOST", help="one host of the inventory")
    parser.add_argument("--weights", action="store_true", help="remove checkpoints as well")
    parser.add_argument("--yes", "-y", action="store_true", help="remove without confirmation")
    unplanned.add_arguments(parser, limit=False)


def run(args: argparse.Namespace) -> int:
    """Shows what is there, asks, and removes it."""

    def check(project: Project) -> None:
        if len(project.hosts) != 1:
            raise InputError(f"{args.limit} matches {len(project.hosts)} hosts", "name one host")

    opened = unplanned.open_unplanned(args, _run_class, check=check)
    from rigup.cli.apply import agreed
    from rigup.cli.output import progress as live
    from rigup.cli.output import results as summary
    from rigup.cli.output.console import Console
    from rigup.connection.signals import stop_on_signals
    from rigup.operations.primitives import progress
    from rigup.run.gateways.drains import drains_of
    from rigup.run.result import exit_code

    console, view = Console(stderr=args.json, highlight=False), live.view()
    with opened as run, stop_on_signals():
        progress.listen(view.show)
        with view:
            run.connect(take_lease=True)
            run.find(args.weights)
        if _show(run, args.weights, console) and not args.yes and not agreed(console, "uninstall", "Remove this?"):
            if args.json:
                _print_json(run, args.weights)
            return 1
        with view, drains_of(run.context, allow_outage=True) as drains:
            run.remove(args.weights, drains)
    results = list(run.results.values())
    if args.json:
        _print_json(run, args.weights)
    elif any(result.errors for result in results):
        summary.show_results(results, console)
    elif any(result.changes for result in results):
        console.print(f"{results[0].host}: removed; take it out of the inventory, too", markup=False, soft_wrap=True)
    return exit_code(results)


def _run_class() -> type[UninstallRun]:
    from rigup.run.whole_hosts.uninstall import UninstallRun

    return UninstallRun


def _show(run: UninstallRun, weights: bool, console: Console) -> bool:
    """Prints what goes and what stays. Returns whether anything goes."""
    from rigup.units import bytes_text

    for host, found in run.found.items():
        if not found.is_anything(weights):
            console.print(f"{host}: nothing of rigup's is there", markup=False, soft_wrap=True)
            continue
        size = bytes_text(found.other_bytes)
        lines = [f"{host}:", f"  goes: {', '.join(('service ' + name) for name in found.services) or 'no service'}"]
        lines.append(f"  goes: builds, programs, keys, caches, records and units, {size}")
        if found.weights:
            lines.append(f"  {'goes' if weights else 'stays'}: weights, {bytes_text(found.weights)}")
        lines.append("  stays: driver, packages and their pins")
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)
    return any(found.is_anything(weights) for found in run.found.values())


def _print_json(run: UninstallRun, weights: bool) -> None:
    from rigup.cli.output import results as summary

    about = {
        name: {"services": list(found.services), "bytes": found.other_bytes, "weights_bytes": found.weights}
        for name, found in run.found.items()
    }
    json.dump(summary.as_json(list(run.results.values())) | {"found": about, "weights": weights}, sys.stdout, indent=1)
    print()
