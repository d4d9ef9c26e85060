"""`rigup rollback`: rolls services back to an earlier release, which must answer."""

from __future__ import annotations

import argparse

from rigup.cli.output import results as summary
from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.output.typed_words import whole_number
from rigup.cli.releases import open_rollback_run
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.confirmation import add_yes, agreed
from rigup.operations.service.health import QUESTION
from rigup.run.gateways.drains import drains_of
from rigup.run.result import exit_code
from rigup.run.rollback import RollbackRun

EPILOG = """\
examples:
  rigup rollback                            roll every service back to its last healthy release
  rigup rollback --limit gpu1.lan --yes     roll one host back without confirmation
  rigup rollback --service chat --to 4      roll back to release 4 (rigup releases lists them)

Behind a gateway, hosts go back one after another: each gets no requests until it answers again.

Revert the inventory or the lock as well; otherwise the next rigup apply installs the newer release again.

exit codes: 0 every service is healthy, 1 a host failed, or declined, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, --service, --to and --yes."""
    hosts.add_arguments(parser)
    parser.add_argument("--service", metavar="NAME", help="roll back only this service (default: all)")
    parser.add_argument(
        "--to",
        type=whole_number("--to", 1, 10**9),
        metavar="N",
        help="roll back to release N (default: the last earlier release that answered)",
    )
    hosts.add_allow_outage(parser)
    add_yes(parser, "roll back")


def run(args: argparse.Namespace) -> int:
    """Shows the steps, asks for confirmation, and rolls back."""
    out = lines(stderr=args.json)
    with hosts.watched(open_rollback_run(args)) as (run, view):
        with view:
            run.connect(take_lease=True)
            run.plan_rollback(args.service, args.to)
        show_steps(run, out)
        if any(run.steps.values()) and not agreed(args, out, "Roll back?"):
            if args.json:
                print_json(summary.as_json(run.results.values()))
            return 1
        with view, drains_of(run.context, args.allow_outage) as drains:
            run.go_back(drains)
    results = list(run.results.values())
    if args.json:
        print_json(summary.as_json(results))
    else:
        summary.show_answers(results, QUESTION, out)
        summary.show_results(results, out)
        if any(result.state == "changed" for result in results):
            out.say("revert the inventory or the lock, too: the next rigup apply goes forward again")
    return exit_code(results)


def show_steps(run: RollbackRun, out: Lines) -> None:
    """Prints the steps by host and what each changes."""
    for name, steps in run.steps.items():
        for step in steps:
            out.say((name, "bold"), f": {step.name}")
            for change in step.differences:
                out.say("  ", ("~", "yellow"), f" {change}")
