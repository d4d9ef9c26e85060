"""Code shared by `bench` and `eval`: selecting services, showing and storing results."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rigup.cli.output.lines import print_json
from rigup.cli.sessions import session as hosts
from rigup.connection import startup
from rigup.errors import InputError
from rigup.sources.web_address import web_address

if TYPE_CHECKING:
    from rigup.cli.output.console import Console
    from rigup.run.result import HostResult
    from rigup.run.service_run import Ask


Result = dict[str, Any]
Found = TypeVar("Found")


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
    """Raises InputError for an inventory together with --url, options that require --url, and what is not a URL."""
    if args.url and (args.inventory or args.limit or args.service):
        raise InputError("--url cannot be combined with INVENTORY, --limit or --service", "omit one of them")
    if not args.url and (args.model or args.api_key_file):
        raise InputError(
            "--model and --api-key-file require --url", "omit them; the inventory defines both for its services"
        )
    if args.url:
        web_address("--url", args.url, hint="write http://HOST:PORT", login_hint="pass a key in a file: --api-key-file")


def key_of(args: argparse.Namespace) -> str | None:
    """The endpoint's API key. Raises InputError if others can read its file."""
    from rigup.project.settings import read_secret

    return read_secret(Path(), "--api-key-file", args.api_key_file) if args.api_key_file else None


def compared(
    args: argparse.Namespace, read: Callable[[str], Result], compare: Callable[[Result, Result], Found]
) -> tuple[tuple[Result, Result], Found]:
    """The results that --compare names, and what `compare` finds. Raises InputError for a file changed by hand."""
    before, after = (read(path) for path in args.compare)
    try:
        return (before, after), compare(before, after)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, IndexError):
        names = f"{args.compare[0]} or {args.compare[1]}"
        raise InputError(f"{names}: not a result of rigup {args.verb}", "name two files as rigup wrote them") from None


def ask_services(
    args: argparse.Namespace, prepare: Callable[[Path], Ask]
) -> tuple[Path, list[dict[str, Any]], list[HostResult]]:
    """Asks the services of the inventory; returns the fleet folder, a result per service, and the host results.

    prepare: called with the fleet folder before any host is contacted; returns the function to run per service.
    """
    startup.patch_for_many_hosts()
    from rigup.run.service_run import ServiceRun, check_service

    project, opened = hosts.open_run(args, lambda: ServiceRun)
    with hosts.watched(opened) as (run, view):
        check_service(run.plans, args.service)
        ask = prepare(project.root)
        with view:
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
            console.say(f"stored in {file}")
        except InputError as error:
            file, problems[error.message] = None, error
        stored.append({"file": file, **one})
    if as_json:
        content = {"schema": 1, "results": stored, "failed": summary.as_json(failed)["hosts"]}
        print_json(content)
    for problem in problems.values():
        show_error(problem, as_json=False)
    return max((problem.exit_code for problem in problems.values()), default=0)


def ended(found: list[dict[str, Any]], results: list[HostResult]) -> int:
    """The exit code of the run; 2 if only input errors prevented every service from being asked."""
    from rigup.run.result import exit_code

    code = exit_code(results) if results else 0
    asked_wrongly = all(error.exit_code == 2 for result in results for error in result.errors)
    return 2 if code == 1 and not found and asked_wrongly else code
