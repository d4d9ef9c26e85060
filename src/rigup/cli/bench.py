"""`rigup bench`: tokens a second, TTFT, TPOT and ITL of running services; kept, and compared."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import asking
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.fleet.asking import Ask
    from rigup.verify.bench_client import Wanted

EPILOG = """\
examples:
  rigup bench                                        five runs of 100 tokens on every service of the only inventory
  rigup bench --preset sweep --limit gpu1.lan        1 to 1,024 requests at once, 2,048 tokens in, 512 out
  rigup bench --preset long                          prompts of 20,000 and 100,000 tokens
  rigup bench --concurrency 1,8,64 --input 512 --output 128 --seconds 20
  rigup bench --url http://127.0.0.1:8000            any OpenAI-compatible endpoint, without an inventory
  rigup bench --compare results/a.json results/b.json

exit codes: 0 measured (failed requests are in the table), 1 a level got no answer, or a host failed,
2 could not ask, 130 cancelled: what had been measured is kept and marked. --compare: 0 nothing is worse, 1 something is
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts, the endpoint, and what to measure."""
    asking.add_arguments(parser, "measure")
    parser.add_argument("--preset", choices=("single", "sweep", "long"), help="levels to measure; default: single")
    parser.add_argument("--concurrency", metavar="N,N,...", help="requests at once")
    parser.add_argument("--input", metavar="N,N,...", help="tokens of each prompt")
    parser.add_argument("--output", type=int, metavar="N", help="tokens of each answer")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long each level is measured")
    parser.add_argument(
        "--requests", type=int, metavar="N", help="how many requests a level has, in place of --seconds"
    )
    parser.add_argument("--warmup", type=int, default=1, metavar="N", help="requests before the first level (1)")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="how long a stream may be silent (300)")
    parser.add_argument("--chat", action="store_true", help="ask /v1/chat/completions, where there is nothing else")
    parser.add_argument("--csv", metavar="FILE", help="a line a level, as CSV, too; - for standard output")


def run(args: argparse.Namespace) -> int:
    """Measures, or compares."""
    if args.compare:
        return _compare(args)
    _check(args)
    wanted = _wanted(args)
    return _of_url(args, wanted) if args.url else _of_inventory(args, wanted)


def _check(args: argparse.Namespace) -> None:
    from rigup.cli.page.writing import check_writable

    if args.csv == "-" and args.json:
        raise InputError("--csv - and --json: both would go to standard output", "name a file for the CSV")
    asking.check(args)
    for flag, value, least, most in (("--warmup", args.warmup, 0, 1000), ("--timeout", args.timeout, 1, 86_400)):
        if not least <= value <= most:
            raise InputError(f"{flag}: {value:g}: from {least} to {most}", "leave it out for the default")
    if args.csv:
        check_writable(args.csv, "--csv")  # a measurement may take an hour


def _wanted(args: argparse.Namespace) -> Wanted:
    from rigup.verify.bench_client import Wanted
    from rigup.verify.bench_levels import chosen, levels, numbers

    concurrency = numbers(args.concurrency, "--concurrency") if args.concurrency else None
    lengths = numbers(args.input, "--input") if args.input else None
    preset = chosen(args.preset, concurrency, lengths, args.output, args.seconds, args.requests)
    return Wanted(levels(preset), args.model, args.chat, args.warmup, args.timeout, preset.leave_out)


def _of_url(args: argparse.Namespace, wanted: Wanted) -> int:
    from rigup.cli import live
    from rigup.fleet.bench_progress import show
    from rigup.operations import progress
    from rigup.verify.bench_here import about_url, follow_here
    from rigup.verify.bench_result import Collected

    key = asking.key_of(args)
    where = about_url(args.url, "")["host"]
    collected = Collected("", lambda said: show(where, "", said))
    with live.view() as view:
        progress.listen(view.show)
        last_words = follow_here(wanted.request(args.url, key), collected)
    result = collected.result(wanted, about_url(args.url, collected.endpoint.get("model", "")), last_words)
    return _tell(args, Path(), [result], [])


def _of_inventory(args: argparse.Namespace, wanted: Wanted) -> int:
    def prepare(root: Path) -> Ask:
        from rigup.fleet.benching import bench_service

        return partial(bench_service, wanted=wanted)

    return _tell(args, *asking.ask_services(args, prepare))


def _tell(args: argparse.Namespace, root: Path, measured: list[dict[str, Any]], results: list[Any]) -> int:
    """Stores and shows what was measured, and what came of hosts that failed."""
    from rich.console import Console

    from rigup.cli.bench_table import as_csv, show_result
    from rigup.cli.main import show_error
    from rigup.cli.page.writing import write_page
    from rigup.fleet.bench_results import store
    from rigup.fleet.result import exit_code

    console = Console(stderr=args.json or args.csv == "-")
    not_kept = asking.tell(measured, results, show_result, partial(store, root), console, args.json)
    if args.csv:
        try:
            write_page(args.csv, as_csv(measured), "--csv")
        except InputError as error:  # a disk that has filled up since; the results stand on standard output already
            show_error(error, as_json=False)
            not_kept = error.exit_code
    if not_kept:
        return not_kept
    if any(result["why"] == "stopped" for result in measured):
        return 130
    silent = any(
        not result["complete"] or not level["requests"]["all"] for result in measured for level in result["levels"]
    )
    return (exit_code(results) if results else 0) or int(silent)


def _compare(args: argparse.Namespace) -> int:
    from rich.console import Console

    from rigup.cli.bench_table import changes_as_json, show_changes
    from rigup.fleet.bench_results import read_result
    from rigup.verify.bench_comparison import compare, conditions, level_of

    before, after = (read_result(path) for path in args.compare)
    changes, differ = compare(before, after), conditions(before, after)
    if not changes:
        common = set(map(level_of, before["levels"])) & set(map(level_of, after["levels"]))
        raise InputError(
            f"{args.compare[0]} and {args.compare[1]}: no {'figure' if common else 'level'} is in both",
            "a level that was broken off before an answer came has no figures"
            if common
            else "a level is its concurrency, tokens of prompt and tokens of answer",
        )
    if args.json:
        json.dump(changes_as_json(changes, differ), sys.stdout, indent=1)
        print()
    else:
        show_changes(changes, differ, (before, after), Console())
    return int(any(change.verdict == "worse" for change in changes))
