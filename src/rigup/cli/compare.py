"""`rigup compare`: shows what differs between two hosts."""

from __future__ import annotations

import argparse

from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.output.table import Column, Table
from rigup.cli.sessions import unplanned
from rigup.errors import InputError
from rigup.project.inventory import load_project
from rigup.run.hosts_run import HostsRun
from rigup.run.result import exit_code
from rigup.run.whole_hosts.comparison import Difference, compare

EPILOG = """\
examples:
  rigup compare gpu1.lan gpu2.lan        hardware, system, driver, builds, releases, settings: what differs
  rigup compare gpu1.lan gpu2.lan --json

exit codes: 0 nothing differs, 1 something does, or a host failed, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds two hosts and the arguments of every verb that needs no plan, without --limit."""
    parser.add_argument("hosts", nargs=2, metavar="HOST", help="a host of the inventory")
    unplanned.add_arguments(parser, limit=False)


def run(args: argparse.Namespace) -> int:
    """Prints the differences; changes nothing."""
    first, second = names = (args.hosts[0], args.hosts[1])
    project = load_project(args.inventory, ",".join(names))
    if {host.name for host in project.hosts} != {*names} or first == second:
        raise InputError(f"{first}, {second}: not two hosts", "name two different hosts of the inventory")
    with unplanned.open_unplanned(args, project, HostsRun) as run:
        run.record("compare")
        run.connect(take_lease=False)
        results, found = unplanned.results_of(run), None
    if not any(result.errors for result in results):
        handshakes, data = run.context.handshakes, project.data_by_host
        found = compare((handshakes[first].probe, handshakes[second].probe), (data[first], data[second]))
    if args.json:
        rows = None if found is None else [each.as_json(names) for each in found]
        print_json(summary.as_json(results) | {"differences": rows})
    elif found is None:
        summary.show_failed(results)
    else:
        _show(names, found)
    return exit_code(results) or int(bool(found))


def _show(names: tuple[str, str], found: list[Difference]) -> None:
    console = Console(highlight=False)
    if not found:
        console.say(f"{names[0]} and {names[1]} do not differ")
        return
    values = (Column(name, narrowest=12, middle=True) for name in names)
    table = Table((Column("part", rank=1), Column("what", narrowest=16, middle=True), *values))
    for each in found:
        table.add(each.part, each.what, each.first, each.second)
    console.print(table, soft_wrap=True)
