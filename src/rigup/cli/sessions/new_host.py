"""Code shared by `init` and `up`: probing a host that the fleet does not have yet, and describing it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import Catalogue
from rigup.cli.output.lines import tell
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.unplanned import open_unplanned
from rigup.errors import InputError, Refused
from rigup.facts.probe import Probe
from rigup.planner.inputs.rig_and_services import read_gpus, read_rig
from rigup.preflight.rig import differences
from rigup.project import rig_from_probe
from rigup.project.inventory import HostEntry, Project
from rigup.project.inventory_edit import (
    ExistingHost,
    FileEdit,
    check_group_name,
    entry_of,
    group_for,
    join_group,
    new_folder,
    new_group,
)
from rigup.project.settings import hub_address
from rigup.regular_files import user_path
from rigup.rig import Rig
from rigup.run.runner import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds USER@HOST."""
    parser.add_argument(
        "host", metavar="USER@HOST", help="SSH destination; its host key must already be in known_hosts"
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds what is to be said of the host and of the fleet's folder."""
    parser.add_argument(
        "--group",
        metavar="NAME",
        help="put the host in this group (default: a group with an equal rig, else a new one)",
    )
    parser.add_argument(
        "--fleet", metavar="DIR", default=".", help="write to inventories/ and group_data/ in DIR (default .)"
    )
    parser.add_argument("--gpus", metavar="NAMES", help='name the GPUs of a host without a driver: "4x RTX 3090"')
    parser.add_argument("--hub", metavar="URL", help="download models from this hub; kept in group_data")
    parser.add_argument("--ssh-config", metavar="FILE", help="connect with this OpenSSH client configuration")
    hosts.add_sudo_password(parser)


def check_options(args: argparse.Namespace, root: Path, catalogue: Catalogue) -> None:
    """Raises InputError for what is wrong whatever the host is, before rigup connects to it."""
    if root.exists() and not root.is_dir():
        raise InputError(f"--fleet: {args.fleet}: not a folder", "name the folder of your fleet")
    if args.group is not None:
        check_group_name(args.group)
    if args.gpus is not None:
        read_gpus(rig_from_probe.gpus_of(args.gpus), "--gpus", catalogue)
    hub_of(args)


def connection_data(args: argparse.Namespace) -> dict[str, Any]:
    """What the inventory has to say of the connection."""
    return {"ssh_config_file": str(user_path(args.ssh_config, "--ssh-config").resolve())} if args.ssh_config else {}


def hub_of(args: argparse.Namespace) -> dict[str, Any]:
    """What group_data has to say of the hub. Raises InputError if the address is not a URL."""
    return {"hub": hub_address("--hub", args.hub)} if args.hub else {}


def probe_host(args: argparse.Namespace, root: Path) -> Probe:
    """Probes the host. Raises the error that prevented the probe; other errors become warnings."""
    project = Project(root, root, (HostEntry(args.host, args.verb, connection_data(args)),))
    with open_unplanned(args, project, Run) as run:
        run.connect(take_lease=False)
    result = run.results[args.host]
    if result.probe is None:
        raise result.errors[0]
    for error in result.errors:
        tell(f"warning: {error.message}")
    return result.probe


def rig_of(args: argparse.Namespace, probe: Probe, catalogue: Catalogue) -> tuple[dict[str, Any], Rig]:
    """The rig of a probed host, as group_data has it and as the planner takes it.

    Raises Refused for GPUs that cannot be told or are not those of --gpus, InputError for one that nobody knows.
    """
    command = " ".join(filter(None, ("rigup", args.verb, args.host, getattr(args, "model", None))))
    described = rig_from_probe.rig_of(args.host, probe, args.gpus, command)
    if args.gpus is None:
        rig_from_probe.check_known(args.host, probe, catalogue)
    rig = read_rig(described, f"rigup {args.verb} {args.host}", catalogue)
    if different := differences(rig, probe):
        raise Refused(f"{args.host}: {different[0].message}", different[0].hint)
    return described, rig


def group_to_join(
    args: argparse.Namespace, rig: Rig, there: list[ExistingHost], catalogue: Catalogue
) -> ExistingHost | None:
    """A host of the group that the new one belongs to; None where it needs one of its own. Raises as `group_for`."""
    hub = hub_of(args)
    alike = [member for member in there if not hub or member.entry.data.get("hub") == hub["hub"]]
    return group_for(rig, args.group, alike, catalogue)


def joining(args: argparse.Namespace, member: ExistingHost) -> tuple[list[FileEdit], Path]:
    """The files to change where the host joins a group, and the inventory that will contain it."""
    return [join_group(member, entry_of(args.host, connection_data(args)))], member.inventory


def founding(args: argparse.Namespace, root: Path, group: str, text: str) -> tuple[list[FileEdit], Path]:
    """The files to write where the host gets a group of its own, and the inventory that will contain it."""
    changes = new_group(root, group, entry_of(args.host, connection_data(args)), text)
    return [*new_folder(root), *changes], changes[-1].path
