"""Roles of a fleet's own: files in its roles/ folder, called before or after the toolkit's."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyinfra import host as current_host
from pyinfra.api import deploy

from rigup.api import MARK, OwnRole, RoleHost
from rigup.errors import HostFailed, InputError, RigupError
from rigup.facts.probe import Probe
from rigup.plan import Plan
from rigup.project.group_data import execute, shown
from rigup.project.inventory import Project
from rigup.regular_files import files_in

FOLDER = "roles"

Provision = Callable[..., None]


def with_own_roles(provision: Provision, project: Project) -> Provision:
    """Provisioning with the fleet's roles around the toolkit's. Raises InputError for a file without a role."""
    found = list(own_roles(project.root))
    entries = {entry.name: entry for entry in project.hosts}

    def provision_all(plans: tuple[Plan, ...], probe: Probe, *rest: Any) -> None:
        entry = entries[current_host.name]
        host = RoleHost(entry.name, entry.group, entry.data, plans, probe.os, probe.architecture)
        _call("before", found, host)
        provision(plans, probe, *rest)
        _call("after", found, host)

    return provision_all


def own_roles(root: Path) -> Iterator[tuple[Path, OwnRole]]:
    """The marked functions of each file, in the order of names of files; those that begin with _ have none."""
    for path in files_in(root / FOLDER, ".py"):
        if path.name.startswith("_"):
            continue
        marked = [value for value in execute(path).values() if callable(value) and hasattr(value, MARK)]
        if not marked:
            raise InputError(f"{shown(path)}: has no role", "mark a function with @before or @after of rigup.api")
        yield from ((path, role) for role in marked)


def _call(when: str, found: list[tuple[Path, OwnRole]], host: RoleHost) -> None:
    wanted = [(path, role) for path, role in found if getattr(role, MARK) == when]
    if not wanted:
        return

    def all_of_them() -> None:
        for path, role in wanted:
            _guarded(path, role, host)

    deploy(when)(all_of_them)()


def _guarded(path: Path, role: OwnRole, host: RoleHost) -> None:
    """Calls one role. Raises HostFailed with file and line for any error of its code."""
    try:
        deploy(path.stem)(role)(host)
    except RigupError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f"{shown(path)}:{lines[-1]}" if lines else shown(path)
        raise HostFailed(f"{host.name}: {where}: {type(error).__name__}: {error}", f"correct {shown(path)}") from None
