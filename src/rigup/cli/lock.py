"""`rigup lock`: resolve and pin what the plans of a fleet rest on, or check that the lock still does."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts

if TYPE_CHECKING:
    from rigup.errors import RigupError
    from rigup.fleet.lock_entries import Change
    from rigup.fleet.lock_resolving import Resolver
    from rigup.fleet.locking import Resolved
    from rigup.fleet.vendoring import Vendored

SCHEMA = 1
SIGNS = {"added": "+", "moved": "~", "dropped": "-"}

EPILOG = """\
examples:
  rigup lock                                  pin what the plans of the only inventory need
  rigup lock --check                          for CI: is everything pinned? asks nobody
  rigup lock --upgrade driver=590.48.01       move one thing, keep the rest
  rigup lock --upgrade vllm=0.33.0            an engine, and the packages that come with it
  rigup lock --upgrade unsloth/MiniMax-M2.5-GGUF
  rigup lock --vendor wheelhouse              collect the packages and archives that hosts would fetch
  rigup lock --prune                          drop what no plan uses any more

exit codes: 0 locked, 1 stale or missing (--check) or all refused, 2 could not even ask; then the lock is as it was,
but for --vendor: it collects when the lock is written, and a file that cannot be had or kept is 1 or 2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """INVENTORY, --limit, --json, --check, --upgrade, --vendor and --prune."""
    hosts.add_inventory(parser)
    hosts.add_limit(parser)
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="say what is stale or missing, and write nothing")
    what.add_argument(
        "--upgrade",
        metavar="NAME[=VERSION]",
        help="move this: a repository, an engine, driver, cuda-toolkit, uv, moe-configs (tuned kernels as their files "
        "are now) or eval (the harness of rigup eval); default version: main of a repository, the newest uv, the "
        "catalogue's of the rest",
    )
    parser.add_argument(
        "--vendor", metavar="DIR", type=Path, help="collect what the lock pins there, for hosts without"
    )
    parser.add_argument("--with-weights", action="store_true", help="with --vendor: the checkpoints' files too")
    parser.add_argument("--prune", action="store_true", help="drop what no plan uses")


def run(args: argparse.Namespace) -> int:
    """Locks, or checks the lock; returns 1 where --check finds it stale."""
    from rigup.catalogue.catalogue import load_catalogue
    from rigup.cli.main import show_error
    from rigup.errors import InputError, RigupError
    from rigup.fleet import locking
    from rigup.fleet.inventory import load_project
    from rigup.fleet.lock_resolving import Resolver
    from rigup.fleet.lock_upgrade import Upgrade
    from rigup.units import bytes_text

    if args.prune and (args.limit or args.check):
        other = "--limit" if args.limit else "--check"
        raise InputError(f"--prune: not together with {other}", "what nobody uses shows only when all is planned")
    if args.vendor and args.check:
        raise InputError("--vendor: not together with --check", "--check asks nobody")
    if args.with_weights and not args.vendor:
        raise InputError("--with-weights: only together with --vendor", "rigup lock --vendor DIR --with-weights")
    project = load_project(args.inventory, args.limit)
    catalogue, whole = load_catalogue(project.root), args.limit is None
    if args.check:
        return _show_check(locking.stale(project, catalogue, whole), args.json)
    upgrade = Upgrade.read(args.upgrade) if args.upgrade else None
    resolver = Resolver(project, catalogue, say=lambda line: print(line, file=sys.stderr))
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
        print(json.dumps(as_json(resolved, resolver.warnings, written, done, failed), indent=1))
    elif done:
        print(f"{done.folder}: {len(done.files)} files, {bytes_text(done.bytes)}, {done.fetched} of them new")
    if failed is None:
        return 0
    show_error(failed, as_json=False)
    return failed.exit_code


def vendored(args: argparse.Namespace, resolved: Resolved, resolver: Resolver) -> Vendored:
    """Collects what the lock pins; what could not be had and may lack is told on standard error."""
    from rigup.fleet.vendoring import vendor

    plans = {name[0]: plan for name, plan in resolved.needs.checkpoints.items()}
    hub_of = (lambda repo: resolver.hub_of(plans.get(repo))) if args.with_weights else None
    done = vendor(resolved.after, args.vendor, resolver.say, hub_of)
    for line in done.beside:
        print(f"warning: {line}", file=sys.stderr)
    return done


def _show_check(found: tuple[str, ...], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"schema": SCHEMA, "stale": list(found)}, indent=1))
    elif found:
        print("rigup.lock is stale:", *found, sep="\n  ")
        hint = (
            "rigup plan says what would fit, then rigup lock"
            if any(" is refused: " in line for line in found)
            else "rigup lock"
        )
        print(f"hint: {hint}", file=sys.stderr)
    else:
        print("rigup.lock pins everything")
    return 1 if found else 0


def as_json(
    resolved: Resolved,
    warnings: list[str],
    written: bool,
    done: Vendored | None = None,
    failed: RigupError | None = None,
) -> dict[str, Any]:
    """What happened, for scripts. Keys are only added within a schema."""
    changes = [
        {
            "name": change.name,
            "change": change.kind,
            "before": change.before,
            "after": change.after,
            "against": change.against,
            "packages": [{"name": m.name, "before": m.before, "after": m.after} for m in change.packages],
        }
        for change in resolved.changes
    ]
    return {
        "schema": SCHEMA,
        "lock": str(resolved.path),
        "written": written,
        "changes": changes,
        "warnings": warnings,
        "not_locked": [],
        "vendored": done
        and {"folder": str(done.folder), "files": len(done.files), "bytes": done.bytes, "fetched": done.fetched},
        "refused": [{"host": plan.host, "service": plan.service.name} for plan in resolved.needs.refused],
        **({"error": {"message": failed.message, "hint": failed.hint}} if failed else {}),
    }


def moved_text(change: Change) -> str:
    """How many packages moved with an environment: "against vllm 0.20.2: 120 moved, 30 new, 16 gone"."""
    new = sum(move.before is None for move in change.packages)
    gone = sum(move.after is None for move in change.packages)
    return f"against {change.against}: {len(change.packages) - new - gone} moved, {new} new, {gone} gone"


def show(resolved: Resolved, warnings: list[str], written: bool) -> None:
    """What happened, a line for each entry that is not as it was; what to know about it on standard error."""
    for change in resolved.changes:
        pins = " -> ".join(text for text in (change.before, change.after) if text is not None)
        print(f"{SIGNS[change.kind]} {change.name}  {pins}")
        if change.packages:
            print(f"  {moved_text(change)}")
            print(
                textwrap.fill(
                    ", ".join(map(str, change.packages)), 110, initial_indent=" " * 4, subsequent_indent=" " * 4
                )
            )
    if not resolved.changes:
        print("rigup.lock: its inputs are recorded, no pin moved" if written else "rigup.lock: nothing to change")
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if count := len(resolved.needs.refused):
        services = f"{count} service{' is' if count == 1 else 's are'}"
        print(f"{services} refused, and nothing is locked for them: rigup plan says why", file=sys.stderr)
