"""What `rigup up` writes: the host in an inventory, its group_data, the lock; all of it or nothing."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import load_catalogue
from rigup.cli.lock import open_resolver
from rigup.cli.output.lines import tell
from rigup.cli.sessions import new_host
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.confirmation import check_terminal
from rigup.cli.up.model_choice import check_fits, chosen_service, service_of
from rigup.errors import InputError
from rigup.lock import load_lock
from rigup.lockfile.lock import own_lock, resolve_lock, write
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import check_service_name
from rigup.project import rig_from_probe
from rigup.project.group_data import GROUP_DATA, shown
from rigup.project.inventory import HostEntry, Project, load_project
from rigup.project.inventory_edit import ExistingHost, FileEdit, check_new, members, written
from rigup.project.planning import plan_project, refuse


@dataclass(frozen=True)
class Prepared:
    """A fleet folder that `rigup apply` can carry out.

    edits: the files that were written for the host. lock: "new", "changed" or "unchanged". plans: of the host.
    """

    inventory: Path
    edits: tuple[FileEdit, ...]
    lock_path: Path
    lock: str
    plans: tuple[Plan, ...]
    host: HostEntry

    @property
    def files(self) -> tuple[str, ...]:
        """What was written here, for people."""
        return (*(f"{shown(edit.path)}: {edit.action}" for edit in self.edits), f"{shown(self.lock_path)}: {self.lock}")


def prepared(args: argparse.Namespace, root: Path) -> Prepared:
    """Describes the host unless the fleet has it, locks what it needs, and plans it.

    Raises InputError, Refused or Unreachable, with nothing written.
    """
    catalogue = load_catalogue(root)
    new_host.check_options(args, root, catalogue)
    if args.name is not None:
        check_service_name(args.name, "--name")
    service = service_of(args.model, catalogue) if args.model else None
    there = members(root)
    args.sudo_password, args.ask_sudo_password = hosts.sudo_password(args), False
    known = next((member for member in there if member.entry.name == args.host), None)
    if known is not None:
        _check_serves(args, known, service)
        tell(f"{known.inventory}: {args.host} is described already, in group {known.entry.group}")
        return _locked(args, [], known.inventory)
    check_new(args.host, there)
    if args.model and not args.yes:
        check_terminal(args.verb)
    tell(f"probing {args.host}")
    probe = new_host.probe_host(args, root)
    described, rig = new_host.rig_of(args, probe, catalogue)
    alike = [member for member in there if _serves(member.entry, service or {}, args.name)]
    if (member := new_host.group_to_join(args, rig, alike, catalogue)) is not None:
        return _locked(args, *new_host.joining(args, member))
    service = service or chosen_service(args, rig, catalogue, load_lock(Project(root, root, ()).lock_path))
    group = args.group or _free_name(rig_from_probe.group_name(rig), service, root)
    name = args.name or rig_from_probe.SERVICE
    text = rig_from_probe.group_data(args.host, described, service, new_host.hub_of(args), name=name)
    return _locked(args, *new_host.founding(args, root, group, text))


def _locked(args: argparse.Namespace, edits: list[FileEdit], inventory: Path) -> Prepared:
    """Writes the description, then the lock of the whole inventory; neither where the host's plan is refused."""
    try:
        with written(edits):
            project, mine = load_project(str(inventory)), load_project(str(inventory), args.host)
            with open_resolver(project, load_catalogue(project.root), args.sudo_password) as resolver:
                check_fits(args, mine, resolver.catalogue)
                tell("locking")
                before = own_lock(project).exists()
                resolved = resolve_lock(project, resolver)
                plans = plan_project(mine, resolved.after, resolver.catalogue)
                refuse(plans)
                changed = write(resolved)
    except InputError as error:
        raise InputError(f"nothing was written: {error.message}" if edits else error.message, error.hint) from None
    for warning in resolver.warnings:
        tell(f"warning: {warning}")
    lock = ("changed" if before else "new") if changed else "unchanged"
    return Prepared(inventory, tuple(edits), resolved.path, lock, plans, mine.hosts[0])


def _check_serves(args: argparse.Namespace, known: ExistingHost, service: dict[str, Any] | None) -> None:
    """Raises InputError where a host that the fleet has is to serve something else there."""
    entry = known.entry
    if _serves(entry, service or {}, args.name):
        return
    wanted = " as ".join(filter(None, (args.model, args.name)))
    names = ", ".join(_services(entry)) or "nothing"
    raise InputError(
        f"{known.inventory}: {args.host} is described already; it serves {names}, not {wanted or 'a model'}",
        f"change services in {entry.origins.get('services', entry.data_path)}, then run: rigup lock and rigup apply",
    )


def _serves(entry: HostEntry, service: dict[str, Any], name: str | None) -> bool:
    """Whether a host's description has a service with this model or checkpoint, of this name if one is given."""
    return any(
        name in (None, known) and all(str(said.get(key)).lower() == value.lower() for key, value in service.items())
        for known, said in _services(entry).items()
    )


def _services(entry: HostEntry) -> dict[str, Any]:
    found = entry.data.get("services")
    return {name: said for name, said in found.items() if isinstance(said, dict)} if isinstance(found, dict) else {}


def _free_name(group: str, service: dict[str, Any], root: Path) -> str:
    """A name for a group of its own; with the model's where another group of such rigs has the shorter one."""
    if not (root / GROUP_DATA / f"{group}.py").exists():
        return group
    return f"{group}_{rig_from_probe.slug(next(iter(service.values())).rpartition('/')[2])}"
