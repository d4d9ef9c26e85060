"""`rigup stop` and `start`: services that run or rest until the next apply. `rigup restart` shares them."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from rigup.cli.output import results as summary
from rigup.cli.output.lines import lines, print_json
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions import unplanned
from rigup.cli.sessions.confirmation import add_yes, agreed
from rigup.project.node_groups import with_whole_groups
from rigup.run.gateways.drains import drains_of
from rigup.run.result import exit_code
from rigup.run.services.power import PowerRun

EPILOG = """\
examples:
  rigup stop chat                        stop one service on every host that has it, once its requests have ended
  rigup stop --limit gpu1.lan            stop all services of a host; asks first
  rigup start chat                       start it, and wait until it answers
  rigup start --yes --json               start everything that is stopped, for scripts

A stopped service stays stopped, over a reboot too, until rigup start or the next rigup apply. To keep it stopped, set
enabled = False in its services entry and run rigup apply. Gateways send a service no more requests before it stops.

exit codes: 0 done, 1 a host failed, or declined, 2 usage error or no host reachable, 130 cancelled
"""
DONE = {"stop": "stopped", "start": "started", "restart": "restarted"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds SERVICE, --yes and the arguments of every verb that needs no plan."""
    parser.add_argument("service", nargs="*", metavar="SERVICE", help="select these services (default: all)")
    add_yes(parser, "change all services")
    unplanned.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Asks where no service is named, and changes the services."""
    project = with_whole_groups(unplanned.project_with(args, args.service))
    out = lines(stderr=args.json)
    with hosts.watched(unplanned.open_unplanned(args, project, PowerRun)) as (run, view):
        with view:
            run.connect(take_lease=True)
            run.choose(args.verb, tuple(args.service))
        if any(run.steps.values()) and not args.service and not args.yes:
            for host, names in run.steps.items():
                if names:
                    out.say(f"{host}: {args.verb} {', '.join(names)}")
            if not agreed(args, out, "Continue?"):
                if args.json:
                    print_json(summary.as_json(run.results.values()))
                return 1
        gone = args.verb == "stop" or getattr(args, "allow_outage", False)
        behind = nullcontext() if args.verb == "start" else drains_of(run.context, allow_outage=gone)
        with view, behind as drains:
            run.carry_out(args.verb, drains)
    results = unplanned.results_of(run)
    if args.json:
        print_json(summary.as_json(results))
        return exit_code(results)
    for result in results:
        for change in result.changes:
            verb, _, name = change.step.partition(" ")
            out.say(f"{result.host} {name}: {DONE[verb]}")
        if result.ok and not result.changes:
            out.say(f"{result.host}: nothing to {args.verb}")
    summary.show_failed(results, out)
    return exit_code(results)
