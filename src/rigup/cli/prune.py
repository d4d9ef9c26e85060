"""`rigup prune`: removes builds, caches and, with --weights, weights that no retained release uses."""

from __future__ import annotations

import argparse
from typing import Any

from rigup.cli.output import results as summary
from rigup.cli.output.lines import lines, print_json
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.confirmation import add_yes, agreed
from rigup.run.prune import PruneRun
from rigup.run.result import exit_code

EPILOG = """\
examples:
  rigup prune                       show what can be removed on every host, confirm, remove it
  rigup prune --weights --yes       also remove unused checkpoints, without confirmation
  rigup prune --limit gpu1.lan --json --yes

rigup keeps the builds of retained releases, of the plan and of running services, so rollback still works.

exit codes: 0 done, 1 a host failed, or declined, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, --weights and --yes."""
    hosts.add_arguments(parser)
    parser.add_argument(
        "--weights", action="store_true", help="also remove checkpoints that no release and no plan uses"
    )
    add_yes(parser, "remove")


def run(args: argparse.Namespace) -> int:
    """Runs prune and returns its exit code."""
    _, opened = hosts.open_run(args, lambda: PruneRun)
    out = lines(stderr=args.json)
    with hosts.watched(opened) as (pruning, view):
        with view:
            pruning.find_removals(args.weights)
        results = list(pruning.results.values())
        if summary.show_changes(results, out) and not agreed(args, out, "Remove these?"):
            if args.json:
                print_json(as_json(pruning))
            return 1
        with view:
            pruning.remove()
    if args.json:
        print_json(as_json(pruning))
    else:
        summary.show_results(results, out)
    return exit_code(results)


def as_json(pruning: PruneRun) -> dict[str, Any]:
    """What was removed and what can still be removed, for scripts. Within a schema, keys are only added."""
    rows = []
    for name, result in pruning.results.items():
        # if the user declined, changes are only planned
        made = {change.step for change in result.changes if result.state != "differs"}
        found = [
            (r.text in made, {"what": r.what, "path": r.path, "bytes": r.bytes}) for r in pruning.found.get(name, ())
        ]
        rows.append(
            {
                "host": name,
                "state": result.state,
                "removed": [one for gone, one in found if gone],
                "removable": [one for gone, one in found if not gone],
                "errors": [error.as_json() for error in result.errors],
            }
        )
    return {"schema": 1, "hosts": rows}
