"""`rigup bench`: measures tokens per second, TTFT, TPOT and ITL of running services; stores and compares results."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.bench.client import BenchRequest
from rigup.bench.comparison import compare, conditions, level_of
from rigup.bench.levels import chosen, levels, numbers
from rigup.bench.store import read_result, store
from rigup.cli.output.bench import as_csv, changes_as_json, show_changes, show_result
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json, show_error
from rigup.cli.output.typed_words import add_decimal, add_number
from rigup.cli.page.writing import check_writable, write_page
from rigup.cli.sessions import service_run
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.run.service_run import Ask

EPILOG = """\
examples:
  rigup bench                                        run five requests of 100 tokens on every service
  rigup bench --preset sweep --limit gpu1.lan        measure 1 to 1,024 concurrent requests, 2,048 tokens in, 512 out
  rigup bench --preset long                          measure prompts of 20,000 and 100,000 tokens
  rigup bench --concurrency 1,8,64 --input 512 --output 128 --seconds 20
  rigup bench --url http://127.0.0.1:8000            measure any OpenAI-compatible endpoint, without an inventory
  rigup bench --compare results/a.json results/b.json

After Ctrl-C, rigup stores what it has measured and marks it as incomplete.

exit codes: 0 measured (--compare: nothing worse), 1 a level without answers or a failed host (--compare: worse),
2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, the endpoint, and what to measure."""
    service_run.add_arguments(parser, "measure")
    parser.add_argument(
        "--preset", choices=("single", "sweep", "long"), help="measure a predefined set of levels (default single)"
    )
    parser.add_argument(
        "--concurrency", metavar="N,N,...", help="set the numbers of concurrent requests, one level each"
    )
    parser.add_argument("--input", metavar="N,N,...", help="set the prompt lengths in tokens")
    add_number(parser, "--output", "set the answer length in tokens")
    add_decimal(parser, "--seconds", "measure each level for this long", metavar="S")
    add_number(parser, "--requests", "send this many requests per level instead of --seconds")
    add_number(parser, "--warmup", "send N requests before the first level (default 1)", 1, 0, 1000)
    add_decimal(parser, "--timeout", "fail a stream that is silent for S seconds (default 300)", 300, metavar="S")
    parser.add_argument(
        "--chat", action="store_true", help="use /v1/chat/completions (for servers without /v1/completions)"
    )
    parser.add_argument(
        "--csv", metavar="FILE", help="also write one CSV row per level to FILE (- for standard output)"
    )


def run(args: argparse.Namespace) -> int:
    """Measures, or compares, and returns the exit code."""
    if args.compare:
        return _compare(args)
    _check(args)
    wanted = _wanted(args)
    return _of_url(args, wanted) if args.url else _of_inventory(args, wanted)


def _check(args: argparse.Namespace) -> None:
    if args.csv == "-" and args.json:
        raise InputError("--csv - and --json both write to standard output", "name a file for the CSV")
    service_run.check(args)
    if not 1 <= args.timeout <= 86_400:
        raise InputError(f"--timeout: {args.timeout:g} is not between 1 and 86,400", "omit it to use the default")
    if args.csv:
        check_writable(args.csv, "--csv")  # a measurement may take an hour


def _wanted(args: argparse.Namespace) -> BenchRequest:
    concurrency = numbers(args.concurrency, "--concurrency") if args.concurrency else None
    lengths = numbers(args.input, "--input") if args.input else None
    preset = chosen(args.preset, concurrency, lengths, args.output, args.seconds, args.requests)
    return BenchRequest(levels(preset), args.model, args.chat, args.warmup, args.timeout, preset.leave_out)


def _of_url(args: argparse.Namespace, wanted: BenchRequest) -> int:
    from rigup.bench.local import about_url, follow_here
    from rigup.bench.result import LineCollector, show
    from rigup.cli.output import progress as live
    from rigup.operations.primitives import progress

    key = service_run.key_of(args)
    where = about_url(args.url, "")["host"]
    collected = LineCollector("", lambda state: show(where, "", state))
    with live.view() as view:
        progress.listen(view.show)
        last_words = follow_here(wanted.request(args.url, key), collected)
    result = collected.result(wanted, about_url(args.url, collected.endpoint.get("model", "")), last_words)
    return _show_results(args, Path(), [result], [])


def _of_inventory(args: argparse.Namespace, wanted: BenchRequest) -> int:
    def prepare(root: Path) -> Ask:
        from rigup.bench.run import bench_service

        return partial(bench_service, wanted=wanted)

    return _show_results(args, *service_run.ask_services(args, prepare))


def _show_results(args: argparse.Namespace, root: Path, measured: list[dict[str, Any]], results: list[Any]) -> int:
    """Stores and shows the measurements and the hosts that failed."""
    console = Console(stderr=args.json or args.csv == "-")
    failure = service_run.store_and_show(measured, results, show_result, partial(store, root), console, args.json)
    if args.csv:
        try:
            write_page(args.csv, as_csv(measured), "--csv")
        except InputError as error:  # the disk has filled up; the results are on standard output already
            show_error(error, as_json=False)
            failure = error.exit_code
    if failure:
        return failure
    if any(result["why"] == "stopped" for result in measured):
        return 130
    silent = any(
        not result["complete"] or not level["requests"]["all"] for result in measured for level in result["levels"]
    )
    return service_run.ended(measured, results) or int(silent)


def _compare(args: argparse.Namespace) -> int:
    results, (changes, differ) = service_run.compared(args, read_result, lambda *two: (compare(*two), conditions(*two)))
    if not changes:
        common = set.intersection(*({level_of(level) for level in result["levels"]} for result in results))
        raise InputError(
            f"{args.compare[0]} and {args.compare[1]} have no {'figure' if common else 'level'} in common",
            "measure again; a level interrupted before its first answer has no figures"
            if common
            else "use the same --concurrency, --input and --output for both",
        )
    if args.json:
        print_json(changes_as_json(changes, differ))
    else:
        show_changes(changes, differ, results, Console())
    return int(any(change.verdict == "worse" for change in changes))
