"""`rigup releases`: lists the releases that each host retains and what changed between them."""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

from rich.markup import escape
from rich.text import Text

from rigup.cli.output import results as summary
from rigup.cli.output.console import Console, show_indented
from rigup.cli.output.lines import print_json
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions import unplanned
from rigup.operations.service.history import RetainedRelease, damage_of, differences, hosts_of, with_replaced
from rigup.project.inventory import load_project
from rigup.project.node_groups import with_whole_groups
from rigup.run.result import HostResult, exit_code
from rigup.run.rollback import RollbackRun
from rigup.units import time_text

EPILOG = """\
examples:
  rigup releases                     list the releases of every service of every host
  rigup releases --limit gpu1.lan --json

exit codes: 0 shown, 1 a host failed, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts."""
    hosts.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Reads and shows the releases; changes nothing."""
    with open_rollback_run(args) as run:
        run.connect(take_lease=False)
        run.read()
    results = unplanned.results_of(run)
    for result in results:
        if damaged := damage_of(result.host, run.kept.get(result.host, {})):
            result.fail("failed", *damaged)
    if args.json:
        listed = {name: {service: _json(kept) for service, kept in found.items()} for name, found in run.kept.items()}
        print_json({"schema": 1, "hosts": listed, "errors": _errors(results)})
    else:
        console = Console(highlight=False)
        for name, found in run.kept.items():
            show(name, found, console)
        summary.show_failed(results, console)
    return exit_code(results)


def open_rollback_run(args: argparse.Namespace) -> RollbackRun:
    """Opens a run over the selected hosts and the others of their node groups, without their plans."""
    return unplanned.open_unplanned(args, with_whole_groups(load_project(args.inventory, args.limit)), RollbackRun)


def show(host: str, found: dict[str, tuple[RetainedRelease, ...]], console: Console) -> None:
    """Prints a line per release, newest first, and its changes from the release that ran before it."""
    for service, kept in found.items():
        console.print(f"[bold]{escape(host)} {escape(service)}[/]", soft_wrap=True)
        lower = {release.number: older.number for older, release in pairwise(kept)}
        for older, release in reversed(with_replaced(kept)):
            marks = ["current"] * release.current + ([] if release.answered else ["never answered"])
            marks += [f"after release {older.number}"] if older and older.number != lower[release.number] else []
            marks += [f"built by {release.built_by}"] if release.built_by not in (None, host) else []
            marks += [f"on {' and '.join(spanned)}"] if (spanned := hosts_of(release.manifest)) else []
            line = f"{release.number}  {time_text(release.made)}"
            marked = f"  [bold]{escape(', '.join(marks))}[/]" if marks else ""
            show_indented(Text.from_markup(line + marked), 2, console)
            first = release.damage or str(release.manifest.get("build"))
            for change in differences(older, release) if older else (first,):
                show_indented(Text(change), 7, console)


def _json(kept: tuple[RetainedRelease, ...]) -> list[dict[str, Any]]:
    return [
        {
            "number": release.number,
            "made": time_text(release.made),
            "current": release.current,
            "answered": release.answered,
            "built_by": release.built_by,
            "replaced": older and older.number,
            "changed": list(differences(older, release)) if older else [],
            "manifest": release.manifest,
        }
        for older, release in with_replaced(kept)
    ]


def _errors(results: list[HostResult]) -> list[dict[str, Any]]:
    return [{"host": result.host} | error.as_json() for result in results for error in result.errors]
