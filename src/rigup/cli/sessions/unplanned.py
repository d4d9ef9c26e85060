"""The start of verbs that need no plan: options, and a run over the hosts of the inventory."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.session import SomeRun

if TYPE_CHECKING:
    from rigup.project.inventory import Project
    from rigup.run.hosts_run import HostsRun
    from rigup.run.result import HostResult


def add_arguments(parser: argparse.ArgumentParser, limit: bool = True) -> None:
    """Adds --inventory, --limit, --json and --ask-sudo-password, for verbs whose words are not the inventory."""
    parser.add_argument(
        "--inventory", metavar="INVENTORY", help="inventory file (default: the only file in inventories/)"
    )
    if limit:
        hosts.add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    hosts.add_sudo_password(parser)


def open_unplanned(
    args: argparse.Namespace,
    run_class: Callable[[], type[SomeRun]],
    whole_groups: bool = False,
    check: Callable[[Project], None] = lambda project: None,
) -> SomeRun:
    """Opens a run over the selected hosts, without their plans.

    run_class: returns the class, imported once gevent is in place. whole_groups: with all hosts of each service of
    which some are selected. check: is called with the fleet before any host is contacted.
    """
    hosts.patch_for_many_hosts()
    from rigup.connection.connections import Connections
    from rigup.project.inventory import load_project
    from rigup.project.node_groups import with_whole_groups
    from rigup.settings import HostSettings

    project = load_project(args.inventory, args.limit)
    check(project)
    project = with_whole_groups(project) if whole_groups else project
    contact = Connections(project.data_by_host, hosts.sudo_password(args))
    contact.begin()
    names = [host.name for host in project.hosts]
    return run_class()(project, dict.fromkeys(names, ()), dict.fromkeys(names, HostSettings()), contact)


def hosts_run() -> type[HostsRun]:
    """The plain run over hosts."""
    from rigup.run.hosts_run import HostsRun

    return HostsRun


def results_of(run: HostsRun) -> list[HostResult]:
    """The results of a run; a host without an error, for which there was nothing to do, is as it was."""
    results = list(run.results.values())
    for result in results:
        result.state = "unchanged" if result.state == "pending" else result.state
    return results


def check_service_names(
    project: Project, services: Sequence[str], gateways: bool = False, members: bool = False
) -> None:
    """Raises InputError for a name that is not a service of these hosts.

    gateways: "gateway" may be named, too. members: so may each service that takes turns, not only their first.
    """
    from rigup.run.hosts_run import GATEWAY, check_services

    more = (GATEWAY,) if gateways and any("gateway" in host.data for host in project.hosts) else ()
    check_services(project, tuple(services), more, members)
