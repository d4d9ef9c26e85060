"""`rigup tune GROUP`: an engine's own fused-MoE tuner on one host of a group; what it finds comes home if it wins."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts
from rigup.errors import InputError, Refused

if TYPE_CHECKING:
    from rigup.fleet.inventory import Project
    from rigup.fleet.tuning import Outcome
    from rigup.lock import LockedSource
    from rigup.plan import Plan

EPILOG = """\
examples:
  rigup tune quad_pro_6000                        on a host of that group, after asking
  rigup tune quad_pro_6000 --host gpu2.lan --yes
  rigup tune quad_pro_6000 --tokens 1,8,64,512    fewer numbers of tokens, sooner done

The services of the host are stopped meanwhile and started again in the end, however that comes. A kernel that is faster
than what was there, in every one of several runs, is written into files/moe_configs/: rigup lock pins it, rigup apply
gives it to the group.

exit codes: 0 a faster kernel was kept, 1 it was not faster, or the tuner failed, 2 could not ask, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """GROUP, the arguments of every verb that talks to hosts but --limit, and what to tune."""
    from rigup.fleet.tuning_gain import LEAST_RUNS, RUNS

    parser.add_argument("group", metavar="GROUP", help="the group whose kernel is tuned")
    hosts.add_inventory(parser)
    parser.add_argument("--host", metavar="HOST", help="on this host; default: one on which the fewest services run")
    parser.add_argument("--service", metavar="NAME", help="whose kernel, where several services have one")
    parser.add_argument("--tokens", metavar="N,N,...", help="numbers of tokens to tune for; default: the tuner's own")
    parser.add_argument(
        "--runs", type=int, default=RUNS, metavar="N", help=f"measurements of each side, {LEAST_RUNS} at least"
    )
    parser.add_argument("--yes", "-y", action="store_true", help="stop what serves there without asking")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """The whole of a tuning."""
    hosts.patch_for_many_hosts()
    from rich.console import Console

    from rigup.cli import live
    from rigup.fleet.interrupt import stop_on_signals
    from rigup.fleet.tuning import Request, TuningRun, tuner_files
    from rigup.operations import progress

    tokens = _tokens(args)
    group = _group(args)
    args.limit = args.host or ",".join(group)
    plan = _plan(args)
    project, opened = hosts.open_run(args, TuningRun, service=args.service)
    console = Console(stderr=args.json)
    view = live.view()
    progress.listen(view.show)
    with opened as run, stop_on_signals():
        assert isinstance(run, TuningRun)
        tuner, source = _source(project, plan, console)
        with view:
            files = tuner_files(tuner, source, plan.host)
            run.connect(take_lease=False)
        name = run.idle_host()
        if name is None or not _agreed(name, run.serving(name), args.yes, console):
            return _tell(args, project, None, list(run.results.values()), console)
        with view:
            run.tune(name, Request(plan.model_copy(update={"host": name}), source, files, tokens, args.runs))
        results, outcome = list(run.results.values()), run.outcome
    return _tell(args, project, outcome, results, console)


def _tokens(args: argparse.Namespace) -> tuple[int, ...]:
    from rigup.fleet.tuning_gain import LEAST_RUNS
    from rigup.render.tuning import TOKENS

    if args.runs < LEAST_RUNS:
        raise InputError(f"--runs: {args.runs} runs cannot tell a gain from chance", f"{LEAST_RUNS} at least")
    if args.tokens is None:
        return TOKENS
    parts = args.tokens.split(",")
    if not all(part.isdecimal() and len(part) < 9 and 0 < int(part) <= 2**20 for part in parts):
        raise InputError(f'--tokens: "{args.tokens}" is no list of numbers of tokens', "e.g. --tokens 1,8,64,512")
    return tuple(sorted({int(part) for part in parts}))


def _group(args: argparse.Namespace) -> list[str]:
    """The hosts of the group. Raises InputError for a group, or a host of it, that the inventory does not have."""
    from rigup.fleet.inventory import load_project

    project = load_project(args.inventory)
    groups: dict[str, list[str]] = {}
    for host in project.hosts:
        groups.setdefault(host.group, []).append(host.name)
    if args.group not in groups:
        where = args.inventory or project.inventory
        raise InputError(f'{where}: no group "{args.group}"', f"groups: {', '.join(groups)}")
    found = groups[args.group]
    if args.host is not None and args.host not in found:
        raise InputError(f"--host: {args.host} is not in group {args.group}", f"its hosts: {', '.join(found)}")
    return found


def _plan(args: argparse.Namespace) -> Plan:
    """The plan whose kernel is tuned. Raises InputError where there is none, or more than one."""
    from rigup.fleet.inventory import load_project
    from rigup.fleet.planning import plan_project

    project = load_project(args.inventory, args.limit)
    first = project.hosts[0]
    plans = [plan for plan in plan_project(project) if plan.host == first.name]
    origin = first.origins["services"]
    if not plans:
        raise InputError(
            f"{origin}: services: {first.name} is to serve nothing, so there is no kernel to tune",
            "rigup plan shows what each host serves",
        )
    if args.service is not None and args.service not in [plan.service.name for plan in plans]:
        known = ", ".join(plan.service.name for plan in plans)
        raise InputError(f'--service: {args.group} has no service "{args.service}"', f"its services: {known}")
    asked = [plan for plan in plans if args.service in (None, plan.service.name)]
    if refused := [plan for plan in asked if plan.verdict == "refused"]:
        raise hosts.Refusals(refused)
    found = [plan for plan in asked if plan.moe_config is not None]
    if not found:
        build, checkpoint = asked[0].build, asked[0].checkpoint
        assert build is not None
        what = f"{build.engine} {build.version}" + (f" with {checkpoint.repo} {checkpoint.quant}" if checkpoint else "")
        raise InputError(
            f"{origin}: services.{asked[0].service.name}: {what} runs no kernel here that a config tunes",
            "vLLM and SGLang do for FP8 experts on GPUs that compute in FP8, in their Triton backend",
        )
    if len(found) > 1:
        names = ", ".join(plan.service.name for plan in found)
        raise InputError(f"{origin}: several services have a kernel to tune: {names}", "name one with --service")
    if found[0].build is not None and found[0].build.method != "wheel":
        raise InputError(
            f"{origin}: services.{found[0].service.name}: the tuner runs in an installed engine, not in an image",
            'write "build": "wheel" for the time of the tuning',
        )
    return found[0]


def _source(project: Project, plan: Plan, console: Any) -> tuple[Any, LockedSource]:
    """The tuner, and the pinned archive that holds it: the lock's, else pinned now and written into the lock."""
    from rigup.cache import cache_folder
    from rigup.catalogue.tuners import tuner
    from rigup.fleet.lock_entries import with_sources
    from rigup.fleet.locking import own_lock, write_lock
    from rigup.lock import load_lock
    from rigup.operations.sources import pin_source

    assert plan.build is not None
    engine, version = plan.build.engine, plan.build.version
    found = tuner(engine, version)
    assert found is not None
    path = own_lock(project)
    lock = load_lock(path)
    locked = lock.source(engine, version)
    if locked is not None:
        return found, locked
    if not path.exists():
        raise Refused(f"{path.name} does not exist, and the tuner's archive belongs into it", "run: rigup lock")
    console.print(f"downloading the tuner of {engine} {version}: {found.archive}", highlight=False)
    source = pin_source(engine, version, found.archive, found.root, cache_folder() / "sources")
    write_lock(path, with_sources(lock, [source]))
    console.print(f"+ source {engine} {version}  {source.address} sha256 {source.sha256[:12]}", highlight=False)
    return found, source


def _agreed(name: str, serving: tuple[str, ...], yes: bool, console: Any) -> bool:
    """Whether what serves on a host may be stopped for a while; nobody is asked where nothing runs."""
    from rigup.cli.apply import says_yes

    if yes or not serving:
        return True
    what = f"{name} serves {', '.join(serving)}: {'it stops' if len(serving) == 1 else 'they stop'} while it is tuned"
    if not sys.stdin.isatty():
        raise InputError(f"{what}, and nobody can answer here", "add --yes, or name another host with --host")
    return says_yes(console, f"{what}, which may take hours. Go on?")


def _tell(args: argparse.Namespace, project: Project, outcome: Outcome | None, results: list[Any], console: Any) -> int:
    """Keeps a kernel that wins, says what came of it, and returns the exit code."""
    from rigup.catalogue.moe_configs import path_of
    from rigup.cli import summary
    from rigup.fleet.locking import own_lock
    from rigup.fleet.result import exit_code
    from rigup.fleet.tuning import keep
    from rigup.fleet.tuning_gain import as_json
    from rigup.lock import load_lock

    kept = keep(outcome, project.root) if outcome and outcome.gain.wins else None
    if args.json:
        said: dict[str, Any] = {"kept": str(kept.relative_to(project.root)) if kept else None, "gain": None}
        said |= {"gain": as_json(outcome.gain), "triton": outcome.tuned.triton} if outcome else {}
        json.dump({**summary.as_json(results), **said}, sys.stdout, indent=1)
        print()
    elif outcome is not None:
        console.print(f"{outcome.tuned.title}: {outcome.gain.text}", highlight=False, soft_wrap=True)
        if outcome.gain.slower:
            slower = ", ".join(str(count) for count in outcome.gain.slower)
            console.print(f"slower in every run for {slower} tokens", highlight=False)
        if kept:
            where = kept.relative_to(project.root)
            locked = path_of(outcome.tuned) in load_lock(own_lock(project)).moe_configs
            lock = "rigup lock --upgrade moe-configs" if locked else "rigup lock"
            console.print(f"kept: {where}; now: {lock}, then rigup apply", soft_wrap=True, highlight=False)
        else:
            console.print("not kept: it is not faster than what there was, beyond what the runs differ by")
    if not args.json and any(result.errors for result in results):
        summary.show_results(results, console)
    failed = exit_code(results)
    return failed if failed else 0 if kept else 1
