"""The start of verbs that need no plan: options, and a run over the hosts of the inventory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.session import SomeRun
from rigup.connection.connections import Connections
from rigup.project.inventory import Project, load_project
from rigup.run.hosts_run import GATEWAY, check_services
from rigup.run.result import HostResult
from rigup.run.runner import Run
from rigup.settings import HostSettings


def add_arguments(parser: argparse.ArgumentParser, limit: bool = True) -> None:
    """Adds --inventory, --limit, --json and --ask-sudo-password, for verbs whose words are not the inventory."""
    parser.add_argument(
        "--inventory", metavar="INVENTORY", help="inventory file (default: the only file in inventories/)"
    )
    if limit:
        hosts.add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    hosts.add_sudo_password(parser)


def open_unplanned(args: argparse.Namespace, project: Project, run_class: type[SomeRun]) -> SomeRun:
    """Opens a run over the hosts of this project, without their plans."""
    contact = Connections(project.data_by_host, hosts.sudo_password(args))
    contact.begin()
    names = [host.name for host in project.hosts]
    return run_class(project, dict.fromkeys(names, ()), dict.fromkeys(names, HostSettings()), contact)


def results_of(run: Run) -> list[HostResult]:
    """The results of a run; a host without an error, for which there was nothing to do, is as it was."""
    results = list(run.results.values())
    for result in results:
        result.state = "unchanged" if result.state == "pending" else result.state
    return results


def project_with(
    args: argparse.Namespace, services: Sequence[str], gateways: bool = False, members: bool = False
) -> Project:
    """The hosts that --inventory and --limit select. Raises InputError for a name that is not a service of theirs.

    gateways: "gateway" may be named, too. members: so may each service that takes turns, not only their first.
    """
    project = load_project(args.inventory, args.limit)
    more = (GATEWAY,) if gateways and any("gateway" in host.data for host in project.hosts) else ()
    check_services(project, tuple(services), more, members)
    return project
