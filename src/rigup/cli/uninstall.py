"""`rigup uninstall`: removes from a host all that rigup has put there."""

from __future__ import annotations

import argparse

from rigup.cli.output import results as summary
from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions import unplanned
from rigup.cli.sessions.confirmation import add_yes, agreed
from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.run.gateways.drains import drains_of
from rigup.run.result import exit_code
from rigup.run.whole_hosts.uninstall import UninstallRun
from rigup.units import bytes_text

EPILOG = """\
examples:
  rigup uninstall gpu1.lan               show what goes and what stays, ask, remove it
  rigup uninstall gpu1.lan --weights     remove the checkpoints as well
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
    add_yes(parser, "remove")
    unplanned.add_arguments(parser, limit=False)


def run(args: argparse.Namespace) -> int:
    """Shows what is there, asks, and removes it."""
    out = lines(stderr=args.json)
    project = hosts.project_of_one(args.inventory, args.limit)
    if (name := project.hosts[0].name) != args.limit:  # a pattern or a group has one host by accident
        raise InputError(f"{quoted(args.limit)} is not the name of a host", f"name it: rigup uninstall {name}")
    opened = unplanned.open_unplanned(args, project, UninstallRun)
    with hosts.watched(opened) as (run, view):
        with view:
            run.connect(take_lease=True)
            run.find(args.weights)
        if _show(run, args.weights, out) and not agreed(args, out, "Remove this?"):
            if args.json:
                _print_json(run, args.weights)
            return 1
        with view, drains_of(run.context, allow_outage=True) as drains:
            run.remove(args.weights, drains)
    results = list(run.results.values())
    if args.json:
        _print_json(run, args.weights)
    elif any(result.errors for result in results):
        summary.show_results(results, out)
    elif any(result.changes for result in results):
        out.say(f"{results[0].host}: removed; take it out of the inventory, too")
    return exit_code(results)


def _show(run: UninstallRun, weights: bool, out: Lines) -> bool:
    """Prints what goes and what stays. Returns whether anything goes."""
    for host, found in run.found.items():
        if not found.is_anything(weights):
            out.say(f"{host}: nothing from rigup is installed there")
            continue
        size = bytes_text(found.other_bytes)
        out.say(f"{host}:")
        out.say(f"  goes: {', '.join(('service ' + name) for name in found.services) or 'no service'}")
        out.say(f"  goes: builds, programs, keys, caches, records and units, {size}")
        if found.weights:
            out.say(f"  {'goes' if weights else 'stays'}: weights, {bytes_text(found.weights)}")
        out.say("  stays: driver, packages and their pins")
    return any(found.is_anything(weights) for found in run.found.values())


def _print_json(run: UninstallRun, weights: bool) -> None:
    about = {
        name: {"services": list(found.services), "bytes": found.other_bytes, "weights_bytes": found.weights}
        for name, found in run.found.items()
    }
    print_json(summary.as_json(run.results.values()) | {"found": about, "weights": weights})
