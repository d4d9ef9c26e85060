"""`rigup lock`: resolves and pins what the plans of a fleet need, or checks that the lock is complete."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli.output.lines import print_json, show_error, tell
from rigup.cli.sessions import session as hosts
from rigup.connection import startup
from rigup.errors import InputError, RigupError
from rigup.project.inventory import load_project
from rigup.units import bytes_text

if TYPE_CHECKING:
    from rigup.catalogue.catalogue import Catalogue
    from rigup.errors import RigupError
    from rigup.lockfile.entries import EntryChange
    from rigup.lockfile.lock import ResolvedLock
    from rigup.lockfile.resolver import Resolver
    from rigup.lockfile.vendor import VendoredFiles
    from rigup.project.inventory import Project

SIGNS = {"added": "+", "moved": "~", "dropped": "-"}

EPILOG = """\
examples:
  rigup lock                                  pin what the plans of the only inventory need
  rigup lock --check                          check offline that everything is pinned (for CI)
  rigup lock --upgrade driver=590.48.01       upgrade one pin, keep the rest
  rigup lock --upgrade vllm=0.33.0            upgrade an engine and its packages
  rigup lock --upgrade llama.cpp=b11549       take any build of llama.cpp, also one that rigup does not know
  rigup lock --upgrade unsloth/MiniMax-M2.5-GGUF
  rigup lock --vendor wheelhouse              download the packages and archives that hosts would fetch
  rigup lock --prune                          drop pins that no plan uses

The lock is left unchanged on failure, except that --vendor downloads after the lock is written.

exit codes: 0 locked, 1 stale (--check), refused or a failed download, 2 usage error or source not reachable,
130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds INVENTORY and the options."""
    hosts.add_inventory(parser)
    hosts.add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="list stale and missing pins; write nothing")
    what.add_argument(
        "--upgrade",
        metavar="NAME[=VERSION]",
        help="upgrade one pin; NAME is a repository, an engine, driver, cuda-toolkit, uv, smg, nccl, moe-configs or "
        "eval; without VERSION: latest commit on main (repository), latest release (uv, smg), else the catalogue's "
        "default",
    )
    parser.add_argument(
        "--vendor",
        metavar="DIR",
        type=Path,
        help="download everything the lock pins into DIR, for hosts without internet access",
    )
    parser.add_argument("--with-weights", action="store_true", help="with --vendor: also download checkpoints")
    parser.add_argument("--prune", action="store_true", help="drop pins that no plan uses")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Locks, or checks the lock; returns 1 if --check finds it stale."""
    project = load_project(args.inventory, args.limit)
    if reads_hosts := not args.check and _names_host_files(project):
        startup.patch_for_many_hosts()  # before anything imports sockets
    from rigup.catalogue.catalogue import load_catalogue
    from rigup.lockfile import lock as locking
    from rigup.lockfile.upgrade import Upgrade

    if args.prune and (args.limit or args.check):
        other = "--limit" if args.limit else "--check"
        raise InputError(
            f"--prune cannot be combined with {other}",
            "run it alone; unused pins are found by planning the whole inventory",
        )
    if args.vendor and args.check:
        raise InputError("--vendor cannot be combined with --check", "omit --check, which works offline")
    if args.with_weights and not args.vendor:
        raise InputError("--with-weights requires --vendor", "rigup lock --vendor DIR --with-weights")
    catalogue, whole = load_catalogue(project.root), args.limit is None
    if args.check:
        return _show_check(locking.stale(project, catalogue), args.json)
    upgrade = Upgrade.read(args.upgrade) if args.upgrade else None
    with open_resolver(project, catalogue, hosts.sudo_password(args) if reads_hosts else None) as resolver:
        resolved = locking.resolve_lock(project, resolver, upgrade, args.prune, whole)
        written = locking.write(resolved)
    if not args.json:
        show(resolved, resolver.warnings, written)
    done, failed = None, None
    try:
        done = vendored(args, resolved, resolver) if args.vendor else None
    except RigupError as error:
        failed = error
        failed.hint = "; ".join(filter(None, (error.hint, "the lock is written" if written else None))) or None
    if args.json:
        print_json(as_json(resolved, resolver.warnings, written, done, failed))
    elif done:
        print(f"{done.folder}: {len(done.files)} files, {bytes_text(done.bytes)}, {done.fetched} of them new")
    if failed is None:
        return 0
    show_error(failed, as_json=False)
    return failed.exit_code


@contextmanager
def open_resolver(project: Project, catalogue: Catalogue, sudo_password: str | None) -> Iterator[Resolver]:
    """What asks hubs, indexes and, where a service's files lie there, hosts; its catalogue has all that is named.

    Raises InputError, naming the service, for what cannot be read, and Unreachable.
    """
    from rigup.lockfile.catalogue_files import with_named_models
    from rigup.lockfile.host_reader import HostReader
    from rigup.lockfile.resolver import Resolver

    with HostReader(sudo_password, tell) as reader:
        resolver = Resolver(project, catalogue, tell, reader=reader if _names_host_files(project) else None)
        resolver.catalogue = with_named_models(project, catalogue, resolver)
        yield resolver


def _names_host_files(project: Project) -> bool:
    """Whether a service's checkpoint lies on its host, which rigup then asks over SSH."""
    services = [host.data.get("services") for host in project.hosts]
    named = [
        one.get("checkpoint")
        for each in services
        if isinstance(each, dict)
        for one in each.values()
        if isinstance(one, dict)
    ]
    return any(isinstance(name, str) and name.startswith("/") for name in named)


def vendored(args: argparse.Namespace, resolved: ResolvedLock, resolver: Resolver) -> VendoredFiles:
    """Downloads what the lock pins; prints a warning for each optional file that is missing."""
    from rigup.lockfile.vendor import vendor

    plans = {name[0]: plan for name, plan in resolved.needs.checkpoints.items()}
    source_of = (lambda pinned: resolver.source_of(pinned, plans.get(pinned.repo))) if args.with_weights else None
    done = vendor(resolved.after, args.vendor, resolver.log, source_of)
    for line in done.beside:
        tell(f"warning: {line}")
    return done


def _show_check(found: tuple[str, ...], as_json: bool) -> int:
    if as_json:
        print_json({"schema": 1, "stale": list(found)})
    elif found:
        print("rigup.lock is stale:", *found, sep="\n  ")
        hint = (
            "run rigup plan to see what fits, then rigup lock"
            if any(" is refused: " in line for line in found)
            else "rigup lock"
        )
        tell(f"hint: {hint}")
    else:
        print("rigup.lock pins everything")
    return 1 if found else 0


def as_json(
    resolved: ResolvedLock,
    warnings: list[str],
    written: bool,
    done: VendoredFiles | None = None,
    failed: RigupError | None = None,
) -> dict[str, Any]:
    """The result for scripts. Within a schema, keys are only added."""
    return {
        "schema": 1,
        "lock": str(resolved.path),
        "written": written,
        "changes": [asdict(change) | {"change": change.kind} for change in resolved.changes],
        "warnings": warnings,
        "not_locked": [],
        "vendored": done
        and {"folder": str(done.folder), "files": len(done.files), "bytes": done.bytes, "fetched": done.fetched},
        "refused": [{"host": plan.host, "service": plan.service.name} for plan in resolved.needs.refused],
        **({"error": failed.as_json()} if failed else {}),
    }


def moved_text(change: EntryChange) -> str:
    """How many packages changed with an environment: "against vllm 0.20.2: 120 moved, 30 new, 16 gone"."""
    new = sum(move.before is None for move in change.packages)
    gone = sum(move.after is None for move in change.packages)
    return f"against {change.against}: {len(change.packages) - new - gone} moved, {new} new, {gone} gone"


def show(resolved: ResolvedLock, warnings: list[str], written: bool) -> None:
    """Prints a line for each changed entry; warnings go to standard error."""
    for change in resolved.changes:
        pins = " -> ".join(text for text in (change.before, change.after) if text is not None)
        print(f"{SIGNS[change.kind]} {change.name}  {pins}")
        if change.packages:
            print(f"  {moved_text(change)}")
            moves, indent = ", ".join(map(str, change.packages)), " " * 4
            print(textwrap.fill(moves, 110, initial_indent=indent, subsequent_indent=indent))
    if not resolved.changes:
        print("rigup.lock: recorded the inputs; no pin changed" if written else "rigup.lock: nothing to change")
    for warning in warnings:
        tell(f"warning: {warning}")
    if count := len(resolved.needs.refused):
        services = f"{count} service{' is' if count == 1 else 's are'}"
        tell(f"{services} refused and not locked; run rigup plan to see why")
