"""`rigup tune GROUP`: runs an engine's fused-MoE tuner on one host and keeps the result if it is faster."""

from __future__ import annotations

import argparse
import re
import sys
from typing import Any

from rigup.cache import cache_folder
from rigup.catalogue.moe_configs import path_of
from rigup.catalogue.tools import tuners
from rigup.cli.output import results as summary
from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.confirmation import add_yes, says_yes
from rigup.commands.tuning import TOKENS
from rigup.errors import InputError, Refused
from rigup.lock import LockedSource, load_lock
from rigup.lockfile.entries import with_entries
from rigup.lockfile.lock import own_lock, write_lock
from rigup.plan import Plan
from rigup.project.inventory import Project, load_project
from rigup.project.planning import plan_project, refuse
from rigup.run.gateways.drains import drains_of
from rigup.run.result import HostResult, exit_code
from rigup.sources.archives import pin_source
from rigup.tuning.gain import LEAST_RUNS, RUNS
from rigup.tuning.run import TuningRequest, TuningResult, TuningRun, keep, tuner_files

EPILOG = """\
examples:
  rigup tune quad_pro_6000                        tune on a host of that group, after confirmation
  rigup tune quad_pro_6000 --host gpu2.lan --yes
  rigup tune quad_pro_6000 --tokens 1,8,64,512    tune for fewer batch sizes, to finish sooner

rigup stops the services of the host and starts them again at the end, even after an error. If the tuned kernel is
faster in every run, rigup writes it to files/moe_configs/; then run rigup lock to pin it and rigup apply to install it.

exit codes: 0 a faster kernel was kept, 1 not faster, or failed, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds GROUP, the arguments of every verb that talks to hosts except --limit, and those of tune."""
    parser.add_argument("group", metavar="GROUP", help="tune the kernel of this group")
    hosts.add_inventory(parser)
    parser.add_argument(
        "--host", metavar="HOST", help="tune on this host (default: the host with the fewest running services)"
    )
    parser.add_argument("--service", metavar="NAME", help="tune the kernel of this service, if several have one")
    parser.add_argument("--tokens", metavar="N,N,...", help="tune for these numbers of tokens (default: the tuner's)")
    add_number(parser, "--runs", f"measure each side N times, at least {LEAST_RUNS} (default {RUNS})", RUNS, 1, 1000)
    hosts.add_allow_outage(parser)
    add_yes(parser, "stop running services")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    hosts.add_sudo_password(parser)


def run(args: argparse.Namespace) -> int:
    """Runs tune and returns its exit code."""
    tokens = _tokens(args)
    group = _group(args)
    args.limit = args.host or ",".join(group)
    plan = _plan(args)
    project, opened = hosts.open_run(args, lambda: TuningRun, args.service)
    out = lines(stderr=args.json)
    with hosts.watched(opened) as (run, view):
        tuner, source = _source(project, plan, out)
        with view:
            files = tuner_files(tuner, source, plan.host)
            run.connect(take_lease=False)
        name = run.idle_host()
        if name is None or not _agreed(name, run.serving(name), args.yes, out):
            return _show_results(args, project, None, list(run.results.values()), out)
        with view:
            own = next(each for each in run.plans[name] if each.service.name == plan.service.name)
            with drains_of(run.context, args.allow_outage) as drains:
                run.tune(name, TuningRequest(own, source, files, tokens, args.runs), drains)
        results, outcome = list(run.results.values()), run.outcome
    return _show_results(args, project, outcome, results, out)


def _tokens(args: argparse.Namespace) -> tuple[int, ...]:
    if args.runs < LEAST_RUNS:
        raise InputError(f"--runs: {args.runs} runs cannot distinguish a gain from noise", f"use at least {LEAST_RUNS}")
    if args.tokens is None:
        return TOKENS
    parts = args.tokens.split(",")
    if not all(re.fullmatch("[0-9]{1,8}", part) and 0 < int(part) <= 2**20 for part in parts):
        raise InputError(
            f'--tokens: "{args.tokens}" is not a list of numbers of tokens',
            "separate numbers with commas: --tokens 1,8,64,512",
        )
    return tuple(sorted({int(part) for part in parts}))


def _group(args: argparse.Namespace) -> list[str]:
    """The hosts of the group. Raises InputError if the inventory lacks the group or the host."""
    project = load_project(args.inventory)
    found = [host.name for host in project.hosts if host.group == args.group]
    if not found:
        where, groups = args.inventory or project.inventory, dict.fromkeys(host.group for host in project.hosts)
        raise InputError(f'{where}: group "{args.group}" does not exist', f"choose from: {', '.join(groups)}")
    if args.host is not None and args.host not in found:
        raise InputError(f"--host: {args.host} is not in group {args.group}", f"choose from: {', '.join(found)}")
    return found


def _plan(args: argparse.Namespace) -> Plan:
    """The plan whose kernel is tuned. Raises InputError unless there is exactly one."""
    project = load_project(args.inventory, args.limit)
    first = project.hosts[0]
    plans = [plan for plan in plan_project(project) if plan.host == first.name]
    origin = first.origins["services"]
    if not plans:
        raise InputError(
            f"{origin}: services: {first.name} has no service whose kernel could be tuned",
            "run rigup plan to see what each host serves",
        )
    if args.service is not None and args.service not in [plan.service.name for plan in plans]:
        known = ", ".join(plan.service.name for plan in plans)
        raise InputError(f'--service: {args.group} has no service "{args.service}"', f"choose from: {known}")
    asked = [plan for plan in plans if args.service in (None, plan.service.name)]
    refuse(asked)
    found = [plan for plan in asked if plan.moe_config is not None]
    if not found:
        build, checkpoint = asked[0].build, asked[0].checkpoint
        assert build is not None
        what = f"{build.engine} {build.version}" + (f" with {checkpoint.repo} {checkpoint.quant}" if checkpoint else "")
        raise InputError(
            f"{origin}: services.{asked[0].service.name}: {what} does not run a tunable kernel on this rig",
            "use vLLM or SGLang with experts in block-wise FP8 or 16 bits, and flags that select Triton, such as "
            "--moe-backend triton for vLLM",
        )
    if len(found) > 1:
        names = ", ".join(plan.service.name for plan in found)
        raise InputError(f"{origin}: several services have a kernel to tune: {names}", "name one with --service")
    if found[0].build is not None and found[0].build.method != "wheel":
        raise InputError(
            f"{origin}: services.{found[0].service.name}: the tuner runs in an installed engine, not in an image",
            'set "build": "wheel" while tuning',
        )
    return found[0]


def _source(project: Project, plan: Plan, out: Lines) -> tuple[Any, LockedSource]:
    """The tuner and its pinned archive; an archive that is not in the lock is pinned and written to it."""
    assert plan.build is not None
    engine, version = plan.build.engine, plan.build.version
    found = tuners.tuner(engine, version)
    assert found is not None
    path = own_lock(project)
    lock = load_lock(path)
    locked = lock.source(engine, version)
    if locked is not None:
        return found, locked
    if not path.exists():
        raise Refused(f"{path.name} does not exist; the tuner's archive must be pinned in it", "run rigup lock")
    out.say(f"downloading the tuner of {engine} {version}: {found.archive}")
    source = pin_source(engine, version, found.archive, found.root, cache_folder() / "sources")
    write_lock(path, with_entries(lock, sources=[source]))
    out.say(f"+ source {engine} {version}  {source.address} sha256 {source.sha256[:12]}")
    return found, source


def _agreed(name: str, serving: tuple[str, ...], yes: bool, out: Lines) -> bool:
    """Asks whether the services of a host may be stopped for a while; True if none runs."""
    if yes or not serving:
        return True
    what = f"{name} serves {', '.join(serving)}, which must stop while rigup tunes"
    if not sys.stdin.isatty():
        raise InputError(f"{what}; standard input is not a terminal", "pass --yes, or name another host with --host")
    return says_yes(out, f"{what}. This may take hours. Continue?")


def _show_results(
    args: argparse.Namespace, project: Project, outcome: TuningResult | None, results: list[HostResult], out: Lines
) -> int:
    """Keeps a faster kernel, shows the outcome, and returns the exit code."""
    from rigup.cli.output.json_documents.measurements import GainFigures

    kept = keep(outcome, project.root) if outcome and outcome.gain.wins else None
    if args.json:
        output: dict[str, Any] = {"kept": str(kept.relative_to(project.root)) if kept else None, "gain": None}
        output |= {"gain": GainFigures.of(outcome.gain), "triton": outcome.tuned.triton} if outcome else {}
        print_json({**summary.as_json(results), **output})
    elif outcome is not None:
        out.say(f"{outcome.tuned.title}: {outcome.gain.text}")
        if outcome.gain.slower:
            out.say(f"slower in every run for {', '.join(map(str, outcome.gain.slower))} tokens")
        if kept:
            where = kept.relative_to(project.root)
            locked = path_of(outcome.tuned) in load_lock(own_lock(project)).moe_configs
            lock = "rigup lock --upgrade moe-configs" if locked else "rigup lock"
            out.say(f"wrote {where}; run {lock}, then rigup apply")
        else:
            out.say("discarded: not faster than before by more than the noise between runs")
    if not args.json and any(result.errors for result in results):
        summary.show_results(results, out)
    return exit_code(results) or int(kept is None)
