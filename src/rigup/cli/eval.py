"""`rigup eval`: scores services with lm-evaluation-harness; stores and compares results."""

from __future__ import annotations

import argparse
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rigup.catalogue.tools.evaluation import evaluation
from rigup.cli.output.console import Console
from rigup.cli.output.evaluation import differences_as_json, show_differences, show_result
from rigup.cli.output.lines import print_json, tell
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import service_run
from rigup.connection import startup
from rigup.errors import InputError
from rigup.evaluation.comparison import compare, differing_conditions
from rigup.evaluation.harness import EvaluationRequest
from rigup.evaluation.store import read_result, store
from rigup.project.inventory import LOCK

if TYPE_CHECKING:
    from rigup.run.service_run import Ask

EPILOG = """\
examples:
  rigup lock --upgrade eval                       pin the harness for this machine, once
  rigup eval                                      ask every service 200 questions of gsm8k
  rigup eval --limit gpu1.lan --tasks gsm8k,drop --questions 500
  rigup eval --tasks mine --include-path tasks/   use your own tasks
  rigup eval --url http://127.0.0.1:8000          evaluate any OpenAI-compatible endpoint, without an inventory
  rigup eval --compare evaluations/a.json evaluations/b.json

exit codes: 0 evaluated (--compare: nothing significantly worse), 1 a host or the harness failed (--compare: worse),
2 usage error or no host reachable, 130 cancelled
"""
TASK = re.compile(r"[\w.+*-]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, the endpoint, and what to ask."""
    service_run.add_arguments(parser, "evaluate")
    parser.add_argument("--tasks", metavar="NAME,...", help="run these tasks of lm_eval, or your own (default gsm8k)")
    parser.add_argument("--questions", metavar="N", help='ask N questions per task, or "all" (default 200)')
    parser.add_argument("--include-path", metavar="DIR", help="also look for tasks in this folder")
    parser.add_argument("--completions", action="store_true", help="send plain prompts without the chat template")
    add_number(parser, "--few-shot", "put N examples before each question (default: the task's)", None, 0, 100)
    add_number(parser, "--max-tokens", "limit answers to N tokens (default: the task's)", None, 1, 1_000_000)
    add_number(parser, "--concurrency", "send N questions at once (default 8)", 8, 1, 1024)
    add_number(parser, "--timeout", "fail an answer that takes longer (default 600)", 600, 1, 86_400, metavar="S")


def run(args: argparse.Namespace) -> int:
    """Evaluates, or compares, and returns the exit code."""
    if args.compare:
        return _compare(args)
    wanted = _wanted(args)
    return _of_url(args, wanted) if args.url else _of_inventory(args, wanted)


def _wanted(args: argparse.Namespace) -> EvaluationRequest:
    service_run.check(args)
    tasks = tuple(args.tasks.split(",")) if args.tasks is not None else evaluation().tasks
    for task in tasks:
        if not TASK.fullmatch(task):
            raise InputError(f'--tasks: "{task}" is not a task name', "separate names with commas: gsm8k,drop")
    include = Path(args.include_path) if args.include_path else None
    if include is not None and not include.is_dir():
        raise InputError(
            f"--include-path: {include} is not a folder", "name the folder with the YAML files of your tasks"
        )
    limit = evaluation().limit if args.questions is None else _questions(args.questions)
    return EvaluationRequest(
        tasks,
        limit,
        include,
        args.completions,
        args.concurrency,
        args.few_shot,
        args.max_tokens,
        args.timeout,
    )


def _questions(text: str) -> int | None:
    if text == "all":
        return None
    if not re.fullmatch("[0-9]{1,9}", text) or not int(text):
        raise InputError(f'--questions: "{text}" is not a number of questions', 'pass a positive number, or "all"')
    return int(text)


def _harness(root: Path) -> tuple[Path, str]:
    """Returns the Python of the locked harness, installed if needed, and the harness version."""
    from rigup.lock import load_lock
    from rigup.sources.evaluation_environment import install_harness, locked_harness

    locked, uv = locked_harness(load_lock(root / LOCK))
    return install_harness(locked, uv, tell), locked.version


def _of_url(args: argparse.Namespace, wanted: EvaluationRequest) -> int:
    startup.patch_for_many_hosts()
    from rigup.bench.local import about_url
    from rigup.cli.output import progress as live
    from rigup.connection.signals import stop_on_signals
    from rigup.evaluation.run import check_endpoint, evaluated
    from rigup.operations.primitives import progress

    key = service_run.key_of(args)
    model = check_endpoint(args.url, key, args.model, args.url)
    python, version = _harness(Path())
    about = {**about_url(args.url, model), "service": "", "model": model}
    with stop_on_signals(), live.view() as view:
        progress.listen(view.show)
        result = evaluated(args.url, key, about, python, version, wanted)
    return _show_results(args, Path(), [result], [])


def _of_inventory(args: argparse.Namespace, wanted: EvaluationRequest) -> int:
    def prepare(root: Path) -> Ask:
        from rigup.evaluation.run import evaluate_service

        python, version = _harness(root)
        return partial(evaluate_service, python=python, version=version, wanted=wanted)

    return _show_results(args, *service_run.ask_services(args, prepare))


def _show_results(args: argparse.Namespace, root: Path, found: list[dict[str, Any]], results: list[Any]) -> int:
    """Stores and shows the scores and the hosts that failed."""
    console = Console(stderr=args.json, highlight=False)
    failure = service_run.store_and_show(found, results, show_result, partial(store, root), console, args.json)
    return failure or service_run.ended(found, results)


def _compare(args: argparse.Namespace) -> int:
    results, (found, differ) = service_run.compared(
        args, read_result, lambda *two: (compare(*two), list(differing_conditions(*two)))
    )
    if not found:
        raise InputError(
            f"{args.compare[0]} and {args.compare[1]} have no task in common", "use the same --tasks for both"
        )
    if args.json:
        print_json(differences_as_json(found, differ))
    else:
        show_differences(found, differ, results, Console(highlight=False))
    return int(any(difference.verdict == "worse" for difference in found))
