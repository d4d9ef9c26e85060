"""`rigup diff`: shows what apply would change and all other drift from plan and lock (over SSH, read-only)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.sessions import session as hosts

if TYPE_CHECKING:
    from rigup.run.drift import Drift

EPILOG = """\
examples:
  rigup diff                            compare every host of the only inventory
  rigup diff inventories/homelab.py --limit quad_3090
  rigup diff --deep                     also hash every file of every checkpoint (takes as long as reading them)
  rigup diff --json                     print changes and drift by host as JSON

exit codes: 0 nothing differs, 1 something differs or a host failed, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, and --deep."""
    hosts.add_arguments(parser)
    parser.add_argument("--deep", action="store_true", help="hash every file of every checkpoint again, at disk speed")


def run(args: argparse.Namespace) -> int:
    """Compares and shows; changes nothing on any host."""
    with hosts.open_inspection(args, lambda found: found.compare_all(args.deep)) as inspected:
        results, drift = list(inspected.results.values()), inspected.drift
    from rigup.cli.output import results as summary
    from rigup.run.result import exit_code

    if args.json:
        output = summary.as_json(results)
        for host in output["hosts"]:
            host["drift"] = [found.as_json() for found in drift[host["host"]]]
        print_json(output)
    else:
        out = lines()
        if summary.show_changes(results, out):
            summary.show_how_long(inspected, out)
        show_drift(drift, out)
        summary.show_results(results, out)
    return exit_code(results)


def show_drift(drift: dict[str, tuple[Drift, ...]], out: Lines) -> None:
    """Shows drift by host, with a hint if apply does not repair it."""
    for host, found in drift.items():
        if found:
            out.say((host, "bold"), ": differs from the plan")
        for one in found:
            what = " ".join(word for word in (one.service, one.what) if word)
            out.say("  ", ("!", "red"), f" {what}: {one.message}")
            if one.hint:
                out.say(f"    hint: {one.hint}")
