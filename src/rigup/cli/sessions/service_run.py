"""Code shared by `bench` and `eval`: selecting services, showing and storing results."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli.sessions import session as hosts
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.cli.output.console import Console
    from rigup.run.result import HostResult
    from rigup.run.service_run import Ask


# errors caused by a result file that was changed by hand
NOT_A_RESULT = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError)
CHANGED_BY_HAND = "name two files as rigup wrote them"


def add_arguments(parser: argparse.ArgumentParser, does: str) -> None:
    """Adds the arguments of every verb that talks to hosts, and of the endpoint. does: the verb's action, for help."""
    hosts.add_arguments(parser)
    parser.add_argument("--service", metavar="NAME", help="select only services with this name")
    parser.add_argument(
        "--url", metavar="URL", help=f"{does} this endpoint from here instead of an inventory's services"
    )
    parser.add_argument("--model", metavar="NAME", help="with --url: use this model (default: the endpoint's first)")
    parser.add_argument("--api-key-file", metavar="FILE", help="with --url: read the API key from FILE")
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="compare two stored results")


def check(args: argparse.Namespace) -> None:
    """Raises InputError for an inventory together with --url, and for options that require --url."""
    if args.url and (args.inventory or args.limit or args.service):
        raise InputError("--url cannot be combined with INVENTORY, --limit or --service", "omit one of them")
    if not args.url and (args.model or args.api_key_file):
        raise InputError(
            "--model and --api-key-file require --url", "omit them; the inventory defines both for its services"
        )


def key_of(args: argparse.Namespace) -> str | None:
    """The endpoint's API key. Raises InputError if others can read its file."""
    from rigup.project.settings import read_secret

    return read_secret(Path(), "--api-key-file", args.api_key_file) if args.api_key_file else None


def ask_services(
    args: argparse.Namespace, prepare: Callable[[Path], Ask]
) -> tuple[Path, list[dict[str, Any]], list[HostResult]]:
    """Asks the services of the inventory; returns the fleet folder, a result per service, and the host results.

    prepare: called with the fleet folder before any host is contacted; returns the function to run per service.
    """
    hosts.patch_for_many_hosts()
    from rigup.cli.output import progress as live
    from rigup.connection.signals import stop_on_signals
    from rigup.operations.primitives import progress
    from rigup.run.service_run import ServiceRun, check_service

    project, opened = hosts.open_run(args, ServiceRun)
    with opened as run, stop_on_signals():
        assert isinstance(run, ServiceRun)
        check_service(run.plans, args.service)
        ask = prepare(project.root)
        with live.view() as view:
            progress.listen(view.show)
            run.connect(take_lease=True)
            found = run.ask(args.service, ask)
    return project.root, found, list(run.results.values())


def store_and_show(
    found: Sequence[dict[str, Any]],
    results: Sequence[HostResult],
    show: Callable[[dict[str, Any], Console], None],
    keep: Callable[[dict[str, Any]], Path],
    console: Console,
    as_json: bool,
) -> int:
    """Shows the results and failed hosts, stores the results and prints where; with as_json also prints JSON.

    Returns 0, or the exit code of the error if a result cannot be stored; it is shown regardless.
    """
    from rigup.cli.output import results as summary
    from rigup.cli.output.lines import show_error

    failed = [result for result in results if result.errors]
    for one in found:
        show(one, console)
    summary.show_results(failed, console)
    stored, problems = [], {}
    for one in found:
        try:
            file = str(keep(one))
            console.print(f"stored in {file}", highlight=False, markup=False, soft_wrap=True)
        except InputError as error:
            file, problems[error.message] = None, error
        stored.append({"file": file, **one})
    if as_json:
        content = {"schema": 1, "results": stored, "failed": summary.as_json(failed)["hosts"]}
        json.dump(content, sys.stdout, indent=1)
        print()
    for problem in problems.values():
        show_error(problem, as_json=False)
    return max((problem.exit_code for problem in problems.values()), default=0)
