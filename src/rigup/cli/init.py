"""`rigup init`: probes a host and writes its inventory entry and its group_data file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json, tell
from rigup.cli.output.plan import show
from rigup.cli.output.plan_json import plan_as_json
from rigup.cli.sessions import new_host
from rigup.errors import InputError, Refused
from rigup.facts.probe import Probe
from rigup.lock import load_lock
from rigup.plan import Plan
from rigup.project import rig_from_probe
from rigup.project.inventory import HostEntry, Project, load_project
from rigup.project.inventory_edit import ExistingHost, FileEdit, check_new, members, written
from rigup.project.planning import plan_project
from rigup.project.ssh_settings import check_host_name
from rigup.regular_files import user_path

EPILOG = """\
examples:
  rigup init ada@gpu1.lan                          write to inventories/ and group_data/ in this folder
  rigup init ada@gpu1.lan --group lab --fleet ~/fleet
  rigup init gpu2.lan --gpus "4x RTX 3090"         name the GPUs of a host that has no driver yet

On exit code 2, nothing is written.

exit codes: 0 written and feasible, 1 refused or an unreadable GPU, 2 usage error or host not reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds USER@HOST and the options."""
    new_host.add_arguments(parser)
    new_host.add_options(parser)
    parser.add_argument("--json", action="store_true", help="print probe, files and plan as JSON")


def run(args: argparse.Namespace) -> int:
    """Probes the host, writes its description, and plans it."""
    check_host_name(args.host, "rigup init")
    root = user_path(args.fleet, "--fleet")
    catalogue = load_catalogue(root)
    new_host.check_options(args, root, catalogue)
    there = members(root)
    check_new(args.host, there)
    probe = new_host.probe_host(args, root)
    changes, inventory = _changes(args, root, there, probe, catalogue)
    host, plans = _written(args, changes, inventory)
    _show(args, probe, changes, plans, host.group)
    if not any(plan.verdict == "refused" for plan in plans):
        return 0
    tell(f"{args.host} was still added to {inventory}, in group {host.group}")
    return 1


def _written(args: argparse.Namespace, changes: list[FileEdit], inventory: Path) -> tuple[HostEntry, tuple[Plan, ...]]:
    """Writes the changes and returns the host and its plans.

    Raises InputError, with the changes undone, if they cannot be written or the host cannot be planned.
    """
    try:
        with written(changes):
            project = load_project(str(inventory), args.host)
            return project.hosts[0], plan_project(project)
    except InputError as error:
        raise InputError(f"nothing was written: {error.message}", error.hint) from None


def _changes(
    args: argparse.Namespace, root: Path, there: list[ExistingHost], probe: Probe, catalogue: Catalogue
) -> tuple[list[FileEdit], Path]:
    """The files to change, and the inventory that will contain the host."""
    described, rig = new_host.rig_of(args, probe, catalogue)
    member = new_host.group_to_join(args, rig, there, catalogue)
    if member is not None:
        return new_host.joining(args, member)
    group = args.group or rig_from_probe.group_name(rig)
    lock = load_lock(Project(root, root, ()).lock_path)
    found = rig_from_probe.suggestions(args.host, group, described, catalogue, lock)
    if not found:
        raise Refused(f"{args.host}: nothing in the catalogue fits on {rig.text}", "add a smaller model")
    first, *others = found
    text = rig_from_probe.group_data(args.host, described, first.service, new_host.hub_of(args), others)
    return new_host.founding(args, root, group, text)


def _show(args: argparse.Namespace, probe: Probe, changes: list[FileEdit], plans: Any, group: str) -> None:
    if args.json:
        files = [{"path": str(change.path), "action": change.action} for change in changes]
        answer = {
            "schema": 1,
            "host": args.host,
            "group": group,
            "files": files,
            "probe": probe.as_json(),
            "plans": [plan_as_json(plan) for plan in plans],
        }
        print_json(answer)
        return
    console = Console(highlight=False)
    for change in changes:
        console.print(f"{change.path}: {change.action}", soft_wrap=True, markup=False)
    console.print()
    show(plans, console, idle=() if plans else (args.host,))
