"""`rigup plan`: offline, what each rig will serve and why not."""

from __future__ import annotations

import argparse
import json
import sys

from rigup.cli import hosts

EPILOG = """\
examples:
  rigup plan                                  the only inventory
  rigup plan inventories/homelab.py --explain with the figures that each decision rests on, and their sources
  rigup plan --limit quad_3090 --json         one group, for a script
  rigup plan --calibrate                      GPU memory of past starts against their plans; --write to use it

exit codes: 0 everything fits, 1 at least one service is refused, 2 could not even ask;
of --calibrate: 0 there is a constant to use, 1 too few starts are on record
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """INVENTORY, --limit, --json and --explain."""
    hosts.add_inventory(parser)
    hosts.add_limit(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="the plans as JSON on standard output")
    output.add_argument("--explain", action="store_true", help="also the figures that each plan rests on, with sources")

    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="GPU memory that starts took, from this machine's records, against plans",
    )
    parser.add_argument("--write", action="store_true", help="with --calibrate: have the fleet's plans count with it")


def run(args: argparse.Namespace) -> int:
    """Plans every service of every host, shows it, and returns 1 if any is refused."""
    from rigup.cli import calibrate

    calibrate.check(args)
    if args.calibrate:
        return calibrate.run(args)
    from rigup.fleet.inventory import load_project
    from rigup.fleet.planning import plan_project

    project = load_project(args.inventory, args.limit)
    plans = plan_project(project)
    serving = {plan.host for plan in plans}
    idle = tuple(host for host in project.hosts if host.name not in serving)
    if args.json:
        from rigup.cli.plan_json import as_json

        json.dump(as_json(plans, idle), sys.stdout, indent=1)
        print()
    else:
        from rich.console import Console

        from rigup.cli.plan_table import show

        names = tuple(host.name for host in idle)
        show(plans, Console(highlight=False), explain=args.explain, idle=names)
    return 1 if any(plan.verdict == "refused" for plan in plans) else 0
