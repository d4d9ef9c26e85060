"""`rigup diff`: over SSH, read-only: what apply would change."""

from __future__ import annotations

import argparse
import json
import sys

from rigup.cli import hosts

EPILOG = """\
examples:
  rigup diff                            every host of the only inventory
  rigup diff inventories/homelab.py --limit quad_3090

exit codes: 0 nothing differs, 1 something differs or a host failed, 2 could not ask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts."""
    hosts.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compares and shows; changes nothing on any host."""
    hosts.patch_for_many_hosts()
    from rich.console import Console

    from rigup.cli import live, summary
    from rigup.fleet.result import exit_code
    from rigup.operations import progress

    _, opened = hosts.open_run(args)
    with opened as run, live.view() as view:
        progress.listen(view.show)
        run.connect(take_lease=False)
        run.compare()
    results = list(run.results.values())
    for result in results:
        if result.state == "pending":
            result.state = "unchanged"
    if args.json:
        json.dump(summary.as_json(results), sys.stdout, indent=1)
        print()
    else:
        console = Console()
        summary.show_changes(results, console)
        summary.show_results(results, console)
    return exit_code(results)
