"""`rigup prune`: takes away builds, caches and, if asked, weights that no kept release needs; shows and asks first."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts

if TYPE_CHECKING:
    from rigup.fleet.pruning import Pruning

EPILOG = """\
examples:
  rigup prune                       what could go on every host of the only inventory; asks, then removes it
  rigup prune --weights --yes       checkpoints that no release and no plan needs as well, without asking
  rigup prune --limit gpu1.lan --json --yes

The builds of every release that a host keeps stay, and those of the plan, and whatever runs: rollback goes on working.

exit codes: 0 done, or nothing to remove, 1 a host failed or you said no, 2 could not ask, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts, --weights and --yes."""
    hosts.add_arguments(parser)
    parser.add_argument("--weights", action="store_true", help="checkpoints that no release and no plan needs, too")
    parser.add_argument("--yes", "-y", action="store_true", help="remove without asking")


def run(args: argparse.Namespace) -> int:
    """The whole of it."""
    hosts.patch_for_many_hosts()
    from rich.console import Console

    from rigup.cli import live, summary
    from rigup.cli.apply import agreed
    from rigup.fleet.interrupt import stop_on_signals
    from rigup.fleet.pruning import Pruning
    from rigup.fleet.result import exit_code
    from rigup.operations import progress

    _, opened = hosts.open_run(args, Pruning)
    assert isinstance(opened, Pruning)
    console = Console(stderr=args.json)
    pruning = opened
    with pruning, stop_on_signals():
        view = live.view()
        progress.listen(view.show)
        with view:
            pruning.look(args.weights)
        results = list(pruning.results.values())
        if summary.show_changes(results, console) and not args.yes and not agreed(console, "prune", "Remove these?"):
            if args.json:
                _tell(pruning)
            return 1
        with view:
            pruning.remove()
    if args.json:
        _tell(pruning)
    else:
        summary.show_results(results, console)
    return exit_code(results)


def _tell(pruning: Pruning) -> None:
    json.dump(as_json(pruning), sys.stdout, indent=1)
    print()


def as_json(pruning: Pruning) -> dict[str, Any]:
    """What went, and what could have gone and is still there, for scripts. Keys are only added within a schema."""
    rows = []
    for name, result in pruning.results.items():
        made = {change.step for change in result.changes if result.state != "differs"}  # foreseen alone, after a "no"
        found = [
            (r.text in made, {"what": r.what, "path": r.path, "bytes": r.bytes}) for r in pruning.found.get(name, ())
        ]
        rows.append(
            {
                "host": name,
                "state": result.state,
                "removed": [one for gone, one in found if gone],
                "removable": [one for gone, one in found if not gone],
                "errors": [{"message": error.message, "hint": error.hint} for error in result.errors],
            }
        )
    return {"schema": 1, "hosts": rows}
