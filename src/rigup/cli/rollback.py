"""`rigup rollback`: the release before, in the time that the engine takes to start; it must answer, or it goes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from rigup.cli import hosts

if TYPE_CHECKING:
    from rich.console import Console

    from rigup.fleet.rolling_back import RollingBack

EPILOG = """\
examples:
  rigup rollback                            every service of every host, to the last release before that answered
  rigup rollback --limit gpu1.lan --yes     one host, without asking
  rigup rollback --service chat --to 4      a certain release; rigup releases lists them

Until the inventory or the lock is put back as well, rigup apply goes forward again.

exit codes: 0 done, every service has answered; 1 a host failed or you said no, 2 could not ask, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts, which service, which release, and --yes."""
    hosts.add_arguments(parser)
    parser.add_argument("--service", metavar="NAME", help="only this one (default: all of a host)")
    parser.add_argument("--to", type=int, metavar="N", help="this release (default: the last one before that answered)")
    parser.add_argument("--yes", "-y", action="store_true", help="without asking")


def run(args: argparse.Namespace) -> int:
    """Shows what goes back to what, asks, and does it."""
    from rigup.cli.releases import open_rolling_back

    opened = open_rolling_back(args)
    from rich.console import Console

    from rigup.cli import live, summary
    from rigup.cli.apply import agreed
    from rigup.fleet.interrupt import stop_on_signals
    from rigup.fleet.result import exit_code
    from rigup.operations import progress
    from rigup.verify.generation import QUESTION

    console = Console(stderr=args.json, highlight=False)
    view = live.view()
    with opened as run, stop_on_signals():
        progress.listen(view.show)
        with view:
            run.connect(take_lease=True)
            run.foresee(args.service, args.to)
        show_steps(run, console)
        if any(run.steps.values()) and not args.yes and not agreed(console, "rollback", "Go back?"):
            if args.json:
                _tell(run)
            return 1
        with view:
            run.go_back()
    results = list(run.results.values())
    if args.json:
        _tell(run)
    else:
        summary.show_answers(results, QUESTION, console)
        summary.show_results(results, console)
    return exit_code(results)


def _tell(run: RollingBack) -> None:
    """For scripts. After a "no" the hosts have what would go back, and the state "differs"."""
    from rigup.cli import summary

    json.dump(summary.as_json(list(run.results.values())), sys.stdout, indent=1)
    print()


def show_steps(run: RollingBack, console: Console) -> None:
    """What goes back to what, by host, and what that changes."""
    from rich.markup import escape

    for name, steps in run.steps.items():
        for step in steps:
            console.print(f"[bold]{escape(name)}[/]: {escape(step.name)}", soft_wrap=True)
            for change in step.differences:
                console.print(f"  [yellow]~[/] {escape(change)}", soft_wrap=True)
