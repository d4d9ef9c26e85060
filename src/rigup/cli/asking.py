"""What `bench` and `eval` share: whom they ask, and how they tell what they found."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts
from rigup.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from rigup.fleet.asking import Ask
    from rigup.fleet.result import HostResult


def add_arguments(parser: argparse.ArgumentParser, does: str) -> None:
    """The arguments of every verb that talks to hosts, and the endpoint in their place. does: what the verb does."""
    hosts.add_arguments(parser)
    parser.add_argument("--service", metavar="NAME", help="only the services of this name")
    parser.add_argument("--url", metavar="URL", help=f"{does} this endpoint from here, in place of an inventory's")
    parser.add_argument("--model", metavar="NAME", help="with --url: which of its models; default: its first")
    parser.add_argument("--api-key-file", metavar="FILE", help="with --url: the file that holds its API key")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="what changed from one stored result to another")


def check(args: argparse.Namespace) -> None:
    """Raises InputError for an inventory beside an endpoint, or for what only an endpoint has."""
    if args.url and (args.inventory or args.limit or args.service):
        raise InputError("--url: INVENTORY, --limit and --service say nothing about it", "use one way or the other")
    if not args.url and (args.model or args.api_key_file):
        raise InputError("--model and --api-key-file: only with --url", "an inventory's services say both themselves")


def key_of(args: argparse.Namespace) -> str | None:
    """The endpoint's API key. Raises InputError for a file that others can read, too."""
    from rigup.fleet.settings import read_secret

    return read_secret(Path(), "--api-key-file", args.api_key_file) if args.api_key_file else None


def ask_services(
    args: argparse.Namespace, prepare: Callable[[Path], Ask]
) -> tuple[Path, list[dict[str, Any]], list[HostResult]]:
    """Asks the services of the inventory; returns the fleet's folder, what was found of each, and how hosts fared.

    prepare: takes the fleet's folder, before any host is asked, and returns what to ask each service.
    """
    hosts.patch_for_many_hosts()
    from rigup.cli import live
    from rigup.fleet.asking import AskingRun, check_service
    from rigup.fleet.interrupt import stop_on_signals
    from rigup.operations import progress

    project, opened = hosts.open_run(args, AskingRun)
    with opened as run, stop_on_signals():
        assert isinstance(run, AskingRun)
        check_service(run.plans, args.service)
        ask = prepare(project.root)
        with live.view() as view:
            progress.listen(view.show)
            run.connect(take_lease=True)
            found = run.ask(args.service, ask)
    return project.root, found, list(run.results.values())


def tell(
    found: Sequence[dict[str, Any]],
    results: Sequence[HostResult],
    show: Callable[[dict[str, Any], Console], None],
    keep: Callable[[dict[str, Any]], Path],
    console: Console,
    as_json: bool,
) -> int:
    """Shows what was found of each service and the hosts that failed, then keeps it and says where; for scripts, too.

    Returns 0, or the exit code where something of it cannot be kept, which is shown and said all the same.
    """
    from rigup.cli import summary
    from rigup.cli.main import show_error

    failed = [result for result in results if result.errors]
    for one in found:
        show(one, console)
    summary.show_results(failed, console)
    told, problems = [], {}
    for one in found:
        try:
            file = str(keep(one))
            console.print(f"kept in {file}", highlight=False, markup=False, soft_wrap=True)
        except InputError as error:
            file, problems[error.message] = None, error
        told.append({"file": file, **one})
    if as_json:
        said = {"schema": 1, "results": told, "failed": summary.as_json(failed)["hosts"]}
        json.dump(said, sys.stdout, indent=1)
        print()
    for problem in problems.values():
        show_error(problem, as_json=False)
    return max((problem.exit_code for problem in problems.values()), default=0)
