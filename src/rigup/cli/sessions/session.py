"""Code shared by the verbs that talk to hosts: arguments and opening a run."""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.cli.output.progress import ProgressView
    from rigup.project.inventory import Project
    from rigup.run.inspection import Inspection
    from rigup.run.runner import Run

SomeRun = TypeVar("SomeRun", bound="Run")
SUDO_PASSWORD_VARIABLE = "RIGUP_SUDO_PASSWORD"  # noqa: S105  a name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds INVENTORY, --limit, --json and --ask-sudo-password."""
    add_inventory(parser)
    add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_sudo_password(parser)


def add_inventory(parser: argparse.ArgumentParser) -> None:
    """Adds the optional INVENTORY."""
    parser.add_argument(
        "inventory", nargs="?", metavar="INVENTORY", help="inventory file (default: the only file in inventories/)"
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Adds --limit."""
    parser.add_argument(
        "--limit",
        metavar="GROUP_OR_HOST",
        help="select groups and hosts; separate several with commas; patterns are allowed",
    )


def add_allow_outage(parser: argparse._ActionsContainer) -> None:
    """Adds --allow-outage."""
    parser.add_argument(
        "--allow-outage", action="store_true", help="change a host although no other serves its model behind a gateway"
    )


def add_sudo_password(parser: argparse.ArgumentParser) -> None:
    """Adds --ask-sudo-password."""
    parser.add_argument(
        "--ask-sudo-password",
        action="store_true",
        help=f"ask once for the hosts' sudo password (or set {SUDO_PASSWORD_VARIABLE})",
    )


def plain_run() -> type[Run]:
    """The run of `rigup apply`."""
    from rigup.run.runner import Run

    return Run


def open_run(
    args: argparse.Namespace, run_class: Callable[[], type[SomeRun]], service: str | None = None
) -> tuple[Project, SomeRun]:
    """Reads the fleet, plans it, and prepares the run. Raises InputError before anything is changed.

    The handshakes with the hosts run meanwhile; they are read-only.

    run_class: returns the class, imported once the handshakes have started. service: the run is about this service;
    refused plans of others do not stop it.
    """
    from rigup.connection.connections import Connections
    from rigup.connection.startup import between_imports
    from rigup.project.inventory import load_project

    project = load_project(args.inventory, args.limit)
    contact = Connections(project.data_by_host, sudo_password(args))
    contact.begin()
    try:
        with between_imports():
            from rigup.project.planning import plans_to_apply
            from rigup.project.settings import settings_by_host

            made = run_class()
            plans = plans_to_apply(project, service)
        settings = settings_by_host(project, plans, getattr(args, "source", None), bool(getattr(args, "remove", False)))
        if any("gateway" in host.data for host in project.hosts):
            from rigup.project.gateways import with_gateways

            settings = with_gateways(project, plans, settings)
        if any(one.builders for one in settings.values()):
            from rigup.project.build_settings import check_builders

            check_builders(project, settings)
        return project, made(project, plans, settings, contact)
    except BaseException:
        contact.leave()
        raise


def project_of_one(inventory: str | None, host: str) -> Project:
    """The fleet with this host alone selected. Raises InputError if the word matches several."""
    from rigup.project.inventory import load_project

    project = load_project(inventory, host)
    if len(project.hosts) != 1:
        raise InputError(f"{host} matches {len(project.hosts)} hosts", "name one host")
    return project


@contextmanager
def watched(opened: SomeRun, events: bool = False) -> Iterator[tuple[SomeRun, ProgressView]]:
    """Opens a run that stops in an orderly way on Ctrl-C, with a view that shows its progress while it is entered.

    events: as JSON lines.
    """
    from rigup.cli.output import progress as live
    from rigup.connection.signals import stop_on_signals
    from rigup.operations.primitives import progress

    with opened as run, stop_on_signals():
        view = live.view(events)
        progress.listen(view.show)
        yield run, view


@contextmanager
def open_inspection(args: argparse.Namespace, then: Callable[[Inspection], None]) -> Iterator[Inspection]:
    """Opens the run of `diff`, `status` and `report`, which probes every host, and closes it at the end.

    then: runs under the same live view.
    """
    _, opened = open_run(args, _inspection)
    from rigup.cli.output import progress as live
    from rigup.operations.primitives import progress

    with opened as found:
        with live.view() as view:
            watching = True
            progress.listen(lambda report: view.show(report) if watching else None)  # listeners cannot be removed
            found.connect_and_probe()
            then(found)
        watching = False
        yield found


def _inspection() -> type[Inspection]:
    from rigup.run.inspection import Inspection

    return Inspection


def sudo_password(args: argparse.Namespace) -> str | None:
    """The hosts' sudo password: from the prompt, or as `pop_sudo_password` found it."""
    if args.ask_sudo_password:
        try:
            return getpass.getpass("sudo password on the hosts: ")
        except EOFError:
            hint = f"set {SUDO_PASSWORD_VARIABLE} instead"
            raise InputError("--ask-sudo-password needs input, but standard input is closed", hint) from None
    password: str | None = args.sudo_password
    return password


def pop_sudo_password() -> str | None:
    """Removes the password from the environment, so that child processes do not inherit it, and returns it."""
    return os.environ.pop(SUDO_PASSWORD_VARIABLE, None)
