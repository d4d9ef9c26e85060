"""`rigup init`: probes a box and writes what describes it: its place in an inventory, and its group_data."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.catalogue.catalogue import Catalogue
    from rigup.facts.probe import Probe
    from rigup.fleet.inventory import HostEntry
    from rigup.fleet.joining import Change
    from rigup.plan import Plan

EPILOG = """\
examples:
  rigup init ada@gpu1.lan                          into inventories/ and group_data/ of this folder
  rigup init ada@gpu1.lan --group lab --fleet ~/fleet
  rigup init gpu2.lan --gpus "4x RTX 3090"         a box without a driver: its cards cannot be asked yet

exit codes: 0 written, and it plans; 1 no (a card does not answer, nothing fits, a file is yours), or written, and
refused with what its group serves; 2 could not ask, or not be planned: then nothing is written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """USER@HOST, and where and how."""
    parser.add_argument("host", metavar="USER@HOST", help="as ssh takes it; its key must be known")
    parser.add_argument("--group", metavar="NAME", help="of the host (default: one with an equal rig, else a new one)")
    parser.add_argument(
        "--fleet", metavar="DIR", default=".", help="folder of inventories/ and group_data/ (default .)"
    )
    parser.add_argument("--gpus", metavar="NAMES", help='what they are, where no driver can say: "4x RTX 3090"')
    parser.add_argument("--ssh-config", metavar="FILE", help="an OpenSSH client configuration to reach it with")
    parser.add_argument("--json", action="store_true", help="probe, files and plan as JSON on standard output")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Probes, describes, writes, and plans what was written."""
    hosts.patch_for_many_hosts()
    from rigup.catalogue.catalogue import load_catalogue
    from rigup.fleet.joining import check_new, members, new_folder

    root = Path(args.fleet).expanduser()
    catalogue = load_catalogue(root)
    there = members(root)
    check_new(args.host, there)
    data = {"ssh_config_file": str(Path(args.ssh_config).expanduser().resolve())} if args.ssh_config else {}
    probe = _probe(args, root, data)
    changes, inventory = _changes(args, root, data, probe, catalogue)
    changes = [*new_folder(root), *changes]
    host, plans = _written(args, changes, inventory)
    _show(args, probe, changes, plans, host.group)
    if not any(plan.verdict == "refused" for plan in plans):
        return 0
    print(f"{args.host} is in {inventory} all the same, in group {host.group}", file=sys.stderr)
    return 1


def _written(args: argparse.Namespace, changes: list[Change], inventory: Path) -> tuple[HostEntry, tuple[Plan, ...]]:
    """The host and its plans, as the fleet has them with these changes.

    Raises InputError where they cannot be written, or the host not be planned: the fleet is as it was then.
    """
    from rigup.fleet.inventory import load_project
    from rigup.fleet.joining import written
    from rigup.fleet.planning import plan_project

    try:
        with written(changes):
            project = load_project(str(inventory), args.host)
            return project.hosts[0], plan_project(project)
    except InputError as error:
        raise InputError(f"nothing was written: {error.message}", error.hint) from None


def _probe(args: argparse.Namespace, root: Path, data: dict[str, Any]) -> Probe:
    """What the host is. Raises what kept it from being asked; what speaks against an apply does not keep it."""
    from rigup.fleet.inventory import HostEntry, Project
    from rigup.fleet.runner import Run
    from rigup.fleet.settings import Settings

    project = Project(root, root, (HostEntry(args.host, "init", data),))
    run = Run(project, {args.host: ()}, {args.host: Settings()}, hosts.sudo_password(args))
    with run:
        run.connect(take_lease=False)
    result = run.results[args.host]
    if result.probe is None:
        raise result.errors[0]
    for error in result.errors:
        print(f"warning: {error.message}", file=sys.stderr)
    return result.probe


def _changes(
    args: argparse.Namespace, root: Path, data: dict[str, Any], probe: Probe, catalogue: Catalogue
) -> tuple[list[Change], Path]:
    """The files that change, and the inventory that the host is in then."""
    from rigup.errors import Refused
    from rigup.fleet import describing, joining
    from rigup.fleet.inventory import Project
    from rigup.fleet.preflight_rig import differences
    from rigup.lock import load_lock
    from rigup.planner.reading import read_rig

    described = describing.rig_of(args.host, probe, args.gpus)
    if args.gpus is None:
        describing.check_known(args.host, probe, catalogue)
    rig = read_rig(described, f"rigup init {args.host}", catalogue)
    if different := differences(rig, probe):
        raise Refused(f"{args.host}: {different[0].message}", different[0].hint)
    entry = joining.entry_of(args.host, data)
    member = joining.group_for(rig, args.group, joining.members(root), catalogue)
    if member is not None:
        return [joining.join_group(member, entry)], member.inventory
    group = args.group or describing.group_name(rig)
    lock = load_lock(Project(root, root, ()).lock_path)
    found = describing.suggestions(args.host, group, described, catalogue, lock)
    if not found:
        raise Refused(f"{args.host}: nothing in the catalogue fits on {rig.text}", "add a smaller model")
    text = describing.group_data(args.host, described, found)
    changes = joining.new_group(root, group, entry, text)
    return changes, changes[-1].path


def _show(args: argparse.Namespace, probe: Probe, changes: list[Change], plans: Any, group: str) -> None:
    if args.json:
        from rigup.cli.plan_json import plan_as_json

        files = [{"path": str(change.path), "action": change.action} for change in changes]
        answer = {
            "schema": 1,
            "host": args.host,
            "group": group,
            "files": files,
            "probe": probe.as_json(),
            "plans": [plan_as_json(plan) for plan in plans],
        }
        json.dump(answer, sys.stdout, indent=1)
        print()
        return
    from rich.console import Console

    from rigup.cli.plan_table import show

    console = Console(highlight=False)
    for change in changes:
        console.print(f"{change.path}: {change.action}", soft_wrap=True, markup=False)
    console.print()
    show(plans, console, idle=() if plans else (args.host,))
