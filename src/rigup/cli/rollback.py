"""`rigup rollback`: rolls services back to an earlier release, which must answer."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from rigup.cli.output.typed_words import whole_number
from rigup.cli.sessions import session as hosts

if TYPE_CHECKING:
    from rich.console import Console

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
    parser.add_argument("--yes", "-y", action="store_true", help="roll back without confirmation")


def run(args: argparse.Namespace) -> int:
    """Shows the steps, asks for confirmation, and rolls back."""
    from rigup.cli.releases import open_rollback_run

    opened = open_rollback_run(args)
    from rigup.cli.apply import agreed
    from rigup.cli.output import progress as live
    from rigup.cli.output import results as summary
    from rigup.cli.output.console import Console
    from rigup.connection.signals import stop_on_signals
    from rigup.operations.primitives import progress
    from rigup.operations.service.health import QUESTION
    from rigup.run.gateways.drains import drains_of
    from rigup.run.result import exit_code

    console = Console(stderr=args.json, highlight=False)
    view = live.view()
    with opened as run, stop_on_signals():
        progress.listen(view.show)
        with view:
            run.connect(take_lease=True)
            run.plan_rollback(args.service, args.to)
        show_steps(run, console)
        if any(run.steps.values()) and not args.yes and not agreed(console, "rollback", "Roll back?"):
            if args.json:
                _show_results(run)
            return 1
        with view, drains_of(run.context, args.allow_outage) as drains:
            run.go_back(drains)
    results = list(run.results.values())
    if args.json:
        _show_results(run)
    else:
        summary.show_answers(results, QUESTION, console)
        summary.show_results(results, console)
    return exit_code(results)


def _show_results(run: RollbackRun) -> None:
    """Prints the results as JSON. If the user declined, hosts have the pending steps and the state "differs"."""
    from rigup.cli.output import results as summary

    json.dump(summary.as_json(list(run.results.values())), sys.stdout, indent=1)
    print()


def show_steps(run: RollbackRun, console: Console) -> None:
    """Prints the steps by host and what each changes."""
    from rich.markup import escape

    for name, steps in run.steps.items():
        for step in steps:
            console.print(f"[bold]{escape(name)}[/]: {escape(step.name)}", soft_wrap=True)
            for change in step.differences:
                console.print(f"  [yellow]~[/] {escape(change)}", soft_wrap=True)
