"""`rigup eval`: how well services answer known questions, by lm-evaluation-harness; kept, and compared."""

from __future__ import annotations

import argparse
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.cli import asking, hosts
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.fleet.asking import Ask
    from rigup.fleet.result import HostResult
    from rigup.verify.evaluation import Wanted

EPILOG = """\
examples:
  rigup lock --upgrade eval                       pins the harness for this machine, once
  rigup eval                                      200 questions of gsm8k to every service of the only inventory
  rigup eval --limit gpu1.lan --tasks gsm8k,drop --questions 500
  rigup eval --tasks mine --include-path tasks/   tasks of your own, with their files
  rigup eval --url http://127.0.0.1:8000          any OpenAI-compatible endpoint, without an inventory
  rigup eval --compare evaluations/a.json evaluations/b.json

exit codes: 0 evaluated, 1 a host or the harness failed, 2 could not ask, 130 cancelled.
--compare: 0 nothing is worse beyond chance, 1 something is
"""
TASK = re.compile(r"[\w.+*-]+")
NUMBERS = {"--few-shot": (0, 100), "--max-tokens": (1, 1_000_000), "--concurrency": (1, 1024), "--timeout": (1, 86_400)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts, the endpoint, and what to ask."""
    asking.add_arguments(parser, "evaluate")
    parser.add_argument("--tasks", metavar="NAME,...", help="of lm_eval, or your own; default: gsm8k")
    parser.add_argument("--questions", metavar="N", help='of each task: a number, or "all"; default: 200')
    parser.add_argument("--include-path", metavar="DIR", help="a folder with tasks of your own; their files lie there")
    parser.add_argument("--completions", action="store_true", help="prompts as they are, without the chat template")
    parser.add_argument("--few-shot", type=int, metavar="N", help="examples before each question; default: the task's")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="of an answer; default: the task's")
    parser.add_argument("--concurrency", type=int, default=8, metavar="N", help="questions at once (8)")
    parser.add_argument("--timeout", type=int, default=600, metavar="S", help="how long an answer may take (600)")


def run(args: argparse.Namespace) -> int:
    """Evaluates, or compares."""
    if args.compare:
        return _compare(args)
    wanted = _wanted(args)
    return _of_url(args, wanted) if args.url else _of_inventory(args, wanted)


def _wanted(args: argparse.Namespace) -> Wanted:
    from rigup.catalogue.evaluation import evaluation
    from rigup.verify.evaluation import Wanted

    asking.check(args)
    for flag, (least, most) in NUMBERS.items():
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        if value is not None and not least <= value <= most:
            raise InputError(f"{flag}: {value}: from {least} to {most:,}", "leave it out for the default")
    tasks = tuple(args.tasks.split(",")) if args.tasks is not None else evaluation().tasks
    for task in tasks:
        if not TASK.fullmatch(task):
            raise InputError(f'--tasks: "{task}" is not the name of a task', "names with commas between: gsm8k,drop")
    include = Path(args.include_path) if args.include_path else None
    if include is not None and not include.is_dir():
        raise InputError(f"--include-path: {include} is not a folder", "it holds the YAML files of your tasks")
    limit = evaluation().limit if args.questions is None else _questions(args.questions)
    return Wanted(
        tasks,
        limit,
        include,
        args.completions,
        args.concurrency,
        args.few_shot,
        args.max_tokens,
        args.timeout,
    )


def _questions(said: str) -> int | None:
    if said == "all":
        return None
    if not said.isdecimal() or len(said) > 9 or not int(said):
        raise InputError(f'--questions: "{said}" is not a number of questions', 'write a number from 1 on, or "all"')
    return int(said)


def _harness(root: Path) -> tuple[Path, str]:
    """The Python that has the harness, of the lock of a fleet, and its version."""
    from rigup.fleet.inventory import LOCK
    from rigup.lock import load_lock
    from rigup.operations.harness_environment import locked_harness, made_harness

    locked, uv = locked_harness(load_lock(root / LOCK))
    return made_harness(locked, uv, lambda line: print(line, file=sys.stderr)), locked.version


def _of_url(args: argparse.Namespace, wanted: Wanted) -> int:
    hosts.patch_for_many_hosts()
    from rigup.cli import live
    from rigup.fleet.evaluation import check_endpoint, evaluated
    from rigup.fleet.interrupt import stop_on_signals
    from rigup.operations import progress
    from rigup.verify.bench_here import about_url

    key = asking.key_of(args)
    model = check_endpoint(args.url, key, args.model, args.url)
    python, version = _harness(Path())
    about = {**about_url(args.url, model), "service": "", "model": model}
    with stop_on_signals(), live.view() as view:
        progress.listen(view.show)
        result = evaluated(args.url, key, about, python, version, wanted)
    return _tell(args, Path(), [result], [])


def _of_inventory(args: argparse.Namespace, wanted: Wanted) -> int:
    def prepare(root: Path) -> Ask:
        from rigup.fleet.evaluation import evaluate_service

        python, version = _harness(root)
        return partial(evaluate_service, python=python, version=version, wanted=wanted)

    return _tell(args, *asking.ask_services(args, prepare))


def _tell(args: argparse.Namespace, root: Path, found: list[dict[str, Any]], results: list[Any]) -> int:
    """Stores and shows the scores, and what came of hosts that failed."""
    from rich.console import Console

    from rigup.cli.eval_table import show_result
    from rigup.fleet.evaluation_results import store

    console = Console(stderr=args.json, highlight=False)
    not_kept = asking.tell(found, results, show_result, partial(store, root), console, args.json)
    return not_kept or ended(found, results)


def ended(found: list[dict[str, Any]], results: list[HostResult]) -> int:
    """The exit code: as of every run, but 2 where nobody was asked anything for what is not a host's fault."""
    from rigup.fleet.result import exit_code

    code = exit_code(results) if results else 0
    asked_wrongly = all(error.exit_code == 2 for result in results for error in result.errors)
    return 2 if code == 1 and not found and asked_wrongly else code


def _compare(args: argparse.Namespace) -> int:
    from rich.console import Console

    from rigup.cli.eval_table import differences_as_json, show_differences
    from rigup.fleet.evaluation_results import read_result
    from rigup.verify.evaluation_comparison import compare, differing_conditions

    before, after = (read_result(path) for path in args.compare)
    found, differ = compare(before, after), list(differing_conditions(before, after))
    if not found:
        raise InputError(f"{args.compare[0]} and {args.compare[1]}: no task is in both", "ask both the same --tasks")
    if args.json:
        json.dump(differences_as_json(found, differ), sys.stdout, indent=1)
        print()
    else:
        show_differences(found, differ, (before, after), Console(highlight=False))
    return int(any(difference.verdict == "worse" for difference in found))
