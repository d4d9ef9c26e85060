"""`rigup releases`: which releases of its services each host keeps, and what changed from one to the next."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts

if TYPE_CHECKING:
    from rich.console import Console

    from rigup.fleet.rolling_back import RollingBack
    from rigup.operations.kept_releases import KeptRelease

EPILOG = """\
examples:
  rigup releases                     of every service of every host
  rigup releases --limit gpu1.lan --json

exit codes: 0 shown, 1 a host failed, 2 could not ask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts."""
    hosts.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Reads and shows them; nothing is changed."""
    with open_rolling_back(args) as run:
        run.connect(take_lease=False)
        run.read()
    from rich.console import Console

    from rigup.cli import summary

    results = list(run.results.values())
    for result in results:
        if result.state == "pending":
            result.state = "unchanged"
    if args.json:
        said = {name: {service: _json(kept) for service, kept in found.items()} for name, found in run.kept.items()}
        json.dump({"schema": 1, "hosts": said, **_errors(results)}, sys.stdout, indent=1)
        print()
    else:
        console = Console(highlight=False)
        for name, found in run.kept.items():
            show(name, found, console)
        summary.show_results([result for result in results if result.errors], console)
    from rigup.fleet.result import exit_code

    return exit_code(results)


def open_rolling_back(args: argparse.Namespace) -> RollingBack:
    """A run over the hosts that are asked for; what is planned for them does not matter."""
    hosts.patch_for_many_hosts()
    from rigup.fleet.contact import Contact
    from rigup.fleet.inventory import load_project
    from rigup.fleet.rolling_back import RollingBack
    from rigup.fleet.sets import with_whole_sets
    from rigup.fleet.settings import Settings

    project = with_whole_sets(load_project(args.inventory, args.limit))
    password = hosts.sudo_password(args)
    names = [host.name for host in project.hosts]
    contact = Contact(project, password)
    contact.begin()
    return RollingBack(project, dict.fromkeys(names, ()), dict.fromkeys(names, Settings()), password, contact)


def show(host: str, found: dict[str, tuple[KeptRelease, ...]], console: Console) -> None:
    """A line a release, the newest first, with what it changed."""
    from rich.markup import escape

    from rigup.operations.kept_releases import differences, hosts_of
    from rigup.units import time_text

    for service, kept in found.items():
        console.print(f"[bold]{escape(host)} {escape(service)}[/]")
        for older, release in reversed(list(zip((None, *kept), kept, strict=False))):
            marks = ["current"] * release.current + ([] if release.answered else ["never answered"])
            marks += [f"on {' and '.join(spanned)}"] if (spanned := hosts_of(release.manifest)) else []
            console.print(
                f"  {release.number}  {time_text(release.made)}" + (f"  [bold]{', '.join(marks)}[/]" if marks else "")
            )
            for change in differences(older, release) if older else (str(release.manifest.get("build")),):
                console.print(f"       {escape(change)}", soft_wrap=True)


def _json(kept: tuple[KeptRelease, ...]) -> list[dict[str, Any]]:
    from rigup.operations.kept_releases import differences
    from rigup.units import time_text

    return [
        {
            "number": release.number,
            "made": time_text(release.made),
            "current": release.current,
            "answered": release.answered,
            "changed": list(differences(older, release)) if older else [],
            "manifest": release.manifest,
        }
        for older, release in zip((None, *kept), kept, strict=False)
    ]


def _errors(results: list[Any]) -> dict[str, Any]:
    return {
        "errors": [
            {"host": result.host, "message": error.message, "hint": error.hint}
            for result in results
            for error in result.errors
        ]
    }
