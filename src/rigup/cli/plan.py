"""`rigup plan`: shows offline what each rig will serve, and why not; --ask: what the engines of a host say of it."""

from __future__ import annotations

import argparse
from datetime import date
from typing import get_args

from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.output.plan import show
from rigup.cli.output.plan_json import as_json
from rigup.cli.output.plan_markdown import markdown, read_before
from rigup.cli.sessions import session as hosts
from rigup.connection import startup
from rigup.errors import InputError
from rigup.gateway_settings import GatewayPlan
from rigup.plan import Plan
from rigup.project.gateways import plan_gateways
from rigup.project.inventory import Project, load_project
from rigup.project.planning import plan_project
from rigup.project.settings import disabled_in
from rigup.service import Preference

EPILOG = """\
examples:
  rigup plan                                  plan the only inventory
  rigup plan inventories/homelab.py --explain show the figures behind each decision and their sources
  rigup plan --limit quad_3090 --json         print one group's plans as JSON
  rigup plan --prefer speed                   show the fastest choice of each service; apply ignores --prefer
  rigup plan --format markdown --before main.json
                                              summarise a pull request against an earlier rigup plan --json
  rigup plan --ask gpu1.lan                   have vLLM or SGLang on this host judge its plans, without a GPU's memory
  rigup plan --calibrate                      compare planned GPU memory with past starts

exit codes: 0 everything fits, 1 a service is refused (--ask: or a host failed; --calibrate: too few starts on
record), 2 usage error, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds INVENTORY and the options."""
    hosts.add_inventory(parser)
    hosts.add_limit(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the plans as JSON")
    output.add_argument(
        "--format", choices=("text", "markdown"), default="text", help="print a summary for a pull request (markdown)"
    )
    output.add_argument("--explain", action="store_true", help="also show the figures behind each plan, with sources")

    parser.add_argument(
        "--before", metavar="FILE", help="with --format markdown: also what changed since this output of --json"
    )
    parser.add_argument(
        "--prefer",
        choices=get_args(Preference),
        help="show what every service would run with this preference; set prefer in a service to keep it",
    )
    parser.add_argument(
        "--ask",
        metavar="HOST",
        help="have the engines that are installed on this host or group judge its plans; services go on",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="compare planned GPU memory with what past starts on record actually used",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="with --calibrate: save the measured constants so that future plans use them",
    )
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Plans every service of every host, shows the plans, and returns 1 if any is refused."""
    _check(args)
    if args.ask is not None:
        startup.patch_for_many_hosts()  # before anything imports sockets
        from rigup.cli import judgement

        return judgement.run(args)
    if args.calibrate:
        from rigup.cli import calibrate  # it imports what connects to hosts, and few runs calibrate

        return calibrate.run(args)
    project = load_project(args.inventory, args.limit)
    plans = plan_project(project, prefer=args.prefer, today=date.today())
    gateways = _gateways(project, plans)
    serving = {plan.host for plan in plans} | {gateway.host for gateway in gateways}
    disabled = [(host.name, service) for host in project.hosts for service in disabled_in(host.data)]
    resting = {host for host, _ in disabled}
    idle = tuple(host for host in project.hosts if host.name not in serving | resting)
    if args.json:
        print_json(as_json(plans, idle, gateways, disabled))
    elif args.format == "markdown":
        print(markdown(plans, read_before(args.before) if args.before else None), end="")
    else:
        names = tuple(host.name for host in idle)
        show(plans, Console(highlight=False), args.explain, names, gateways, disabled)
    return 1 if any(plan.verdict == "refused" for plan in plans) else 0


def _check(args: argparse.Namespace) -> None:
    """Raises InputError for options that require or exclude each other."""
    if args.write and not args.calibrate:
        raise InputError("--write requires --calibrate", "rigup plan --calibrate --write")
    if args.calibrate and args.explain:
        raise InputError("--explain cannot be combined with --calibrate", "omit one of them")
    if args.ask is not None and (args.limit or args.calibrate or args.explain or args.prefer or args.format != "text"):
        message = "--ask cannot be combined with --limit, --calibrate, --explain, --prefer or --format"
        raise InputError(message, "omit the other options: rigup plan --ask HOST")
    if args.before and args.format != "markdown":
        raise InputError("--before requires --format markdown", "rigup plan --format markdown --before FILE")


def _gateways(project: Project, plans: tuple[Plan, ...]) -> tuple[GatewayPlan, ...]:
    if not any("gateway" in host.data for host in project.hosts):
        return ()
    return plan_gateways(project, plans)
