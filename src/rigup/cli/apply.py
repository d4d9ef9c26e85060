"""`rigup apply`: shows what would change, asks, makes it so, and ends with an answer from the model."""

from __future__ import annotations

import argparse
import json
import select
import sys
from typing import TYPE_CHECKING, Any

from rigup.cli import hosts
from rigup.errors import InputError

if TYPE_CHECKING:
    from rigup.cli.rolling import RollingApply
    from rigup.fleet.inventory import Project
    from rigup.fleet.result import HostResult
    from rigup.fleet.runner import Run

EPILOG = """\
examples:
  rigup apply                                 the only inventory: show the changes, ask, make them
  rigup apply inventories/homelab.py --yes    without asking
  rigup apply --limit gpu1.lan --json         one host, the result for a script
  rigup apply --yes --reboot                  also reboot hosts whose driver cannot be loaded otherwise
  rigup apply --remove                        also stop and take away services that the inventory names no more
  rigup apply --from vendored                 for hosts that reach no hub: sends what rigup lock --vendor made
  rigup apply --rolling 4                     one host first, then four at a time; stops at the first failed host
  rigup apply --rolling 4 --max-failures 2    goes on as long as no more than two have failed
  rigup apply --rolling 4 --resume            goes on where a rollout stopped or was killed

exit codes: 0 every host is right and its services answered, 1 a host failed or was not begun, or you said no,
2 could not ask, 130 cancelled with Ctrl-C (long steps on the hosts are stopped; once more to leave at once)
"""

LOOK_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that talks to hosts, --yes and what else an apply may do or must not."""
    hosts.add_arguments(parser)
    parser.add_argument("--yes", "-y", action="store_true", help="make the changes without asking")
    parser.add_argument("--reboot", action="store_true", help="with --yes: reboot a host where a change needs it")
    parser.add_argument("--remove", action="store_true", help="also take away services that no plan names any more")
    parser.add_argument("--from", dest="source", metavar="DIR", help="send packages and weights from this folder")
    parser.add_argument("--break-lease", action="store_true", help="take hosts from whoever is changing them")
    rolling = parser.add_argument_group("rolling changes")
    rolling.add_argument(
        "--rolling", type=int, metavar="N", help="one host first, then N at a time, each after answers"
    )
    rolling.add_argument("--max-failures", type=int, metavar="M", help="go on after so many failed hosts (default 0)")
    rolling.add_argument("--resume", action="store_true", help="go on with the rollout that was stopped")


def run(args: argparse.Namespace) -> int:
    """The whole of an apply."""
    _check_rolling(args)
    hosts.patch_for_many_hosts()
    project, opened = hosts.open_run(args, services_answer=True)  # first of all: it begins to reach the hosts
    from rich.console import Console

    from rigup.cli import live, summary
    from rigup.fleet.interrupt import stop_on_signals
    from rigup.fleet.result import exit_code
    from rigup.operations import jobs, progress, reboots
    from rigup.verify.generation import QUESTION

    console = Console(stderr=args.json)
    with opened as run, stop_on_signals():
        rollout = _rollout(args, project, run, console) if args.rolling else None
        run.break_leases = args.break_lease
        view = live.view()
        progress.listen(view.show)
        with view:
            run.connect(take_lease=rollout is not None)
            run.compare(take_lease=True)
        results = list(run.results.values())
        summary.show_left_over(run, console)
        summary.show_broken_leases(run, console)
        changes = bool(summary.show_changes(results, console))
        _show_who_shares(run, console)
        if rollout:
            changes = rollout.begins()
        if changes and not args.yes and not agreed(console):
            if rollout:
                rollout.rolling.end()
            if args.json:
                _tell(results, rollout)
            return 1
        if args.reboot or not args.yes:
            reboots.permit()  # whoever was asked has read which step may reboot
        if rollout:
            rollout.carry_out(view)
        else:
            with view:
                run.execute()
    if args.json:
        _tell(results, rollout, _shares(run))
    else:
        summary.show_answers(results, QUESTION, console)
        _how_to_look_around(results, run.plans, console)
        _show_shares(run, console)
        summary.show_results(results, console)
    if rollout:
        rollout.show_end()
    return 130 if rollout and jobs.cancelled() else exit_code(results)


def _tell(results: list[HostResult], rollout: RollingApply | None, shares: dict[str, Any] | None = None) -> None:
    """For scripts. After a "no" the hosts have what would change, and the state "differs" or "not begun"."""
    from rigup.cli import summary

    of_rollout = {"rollout": rollout.outcome()} if rollout else {}
    json.dump(summary.as_json(results) | of_rollout | (shares or {}), sys.stdout, indent=1)
    print()


def _show_who_shares(run: Run, console: Any) -> None:
    if len(run.results) > 1 and any(change.role == "weights" for one in run.results.values() for change in one.changes):
        from rigup.cli import weights_shares  # few runs share weights

        weights_shares.show_foreseen(run, console)


def _show_shares(run: Run, console: Any) -> None:
    if run.tallies:
        from rigup.cli import weights_shares

        weights_shares.show(run.tallies, console)


def _shares(run: Run) -> dict[str, Any]:
    if not run.tallies:
        return {}
    from rigup.cli import weights_shares

    return {"weights": weights_shares.as_json(run.tallies)}


def _rollout(args: argparse.Namespace, project: Project, run: Run, console: Any) -> RollingApply:
    from rigup.cli.rolling import RollingApply  # not for the many runs that are none

    return RollingApply(args, project, run, console)


def _check_rolling(args: argparse.Namespace) -> None:
    """Raises InputError for numbers that cannot be, and for options that mean nothing without --rolling."""
    if args.rolling is None:
        for name, given in (("--resume", args.resume), ("--max-failures", args.max_failures is not None)):
            if given:
                raise InputError(f"{name}: only with --rolling", "rigup apply --rolling 2 changes two hosts at a time")
    elif args.rolling < 1:
        raise InputError(f"--rolling: {args.rolling}: must be 1 or more", "how many hosts are changed at a time")
    if args.max_failures is not None and args.max_failures < 0:
        raise InputError(f"--max-failures: {args.max_failures}: must be 0 or more", "0 stops at the first failed host")


def agreed(console: Any, verb: str = "apply", question: str = "Make these changes?") -> bool:
    """Whether the user says yes. Raises InputError where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise InputError(f"{verb} asks before it changes anything, and nobody can answer here", "add --yes")
    return says_yes(console, question)


def says_yes(console: Any, question: str) -> bool:
    """Asks, whoever there is. Raises Cancelled for a Ctrl-C in place of an answer."""
    from rigup.operations import jobs

    console.print(f"{question} [y/N] ", end="", markup=False, highlight=False)
    while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:  # unlike input(), it lets leases be renewed
        if jobs.cancelled():
            raise jobs.Cancelled("cancelled: nothing was changed")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _how_to_look_around(results: list[HostResult], plans: dict[str, Any], console: Any) -> None:
    from rigup.layout import unit_name

    for result in results:
        for plan in plans[result.host] if result.ok and result.changes else ():
            address = f"{plan.service.listen}:{plan.service.port}"
            console.print(
                f"\n{result.host} serves {plan.served_name} on {address}: "
                f"systemctl status {unit_name(plan.service.name)}, journalctl -u {unit_name(plan.service.name)}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
