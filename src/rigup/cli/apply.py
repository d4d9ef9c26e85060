"""`rigup apply`: shows the changes, asks for confirmation, makes them, and verifies each service with a request."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NamedTuple

from rigup.cli.output.lines import lines, print_json
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import session as hosts
from rigup.cli.sessions.confirmation import add_yes, agreed
from rigup.errors import InputError
from rigup.layout import unit_name

if TYPE_CHECKING:
    from rigup.cli.output.lines import Lines
    from rigup.cli.output.progress import ProgressView
    from rigup.cli.sessions.rollout import RollingApply
    from rigup.run.result import HostResult
    from rigup.run.runner import Run

EPILOG = """\
examples:
  rigup apply                                 show the changes to the only inventory, confirm, make them
  rigup apply inventories/homelab.py --yes    make the changes without confirmation
  rigup apply --limit gpu1.lan --json         change one host and print the result as JSON
  rigup apply --yes --json --events           also print progress as JSON lines, on standard error
  rigup apply --yes --reboot                  also reboot hosts whose driver needs it
  rigup apply --remove                        also remove services that are no longer in the inventory
  rigup apply --from vendored                 send what rigup lock --vendor collected, to hosts without internet access
  rigup apply --rolling 4                     change one host first, then four at a time; stop at the first failed host
  rigup apply --rolling 4 --max-failures 2    continue until more than two hosts have failed
  rigup apply --rolling 4 --resume            continue a rollout that stopped or was killed

Ctrl-C stops the long steps on the hosts; press it again to leave at once.

exit codes: 0 every service is healthy, 1 a host failed, or declined, 2 usage error or no host reachable, 130 cancelled
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of every verb that talks to hosts, and those of apply."""
    hosts.add_arguments(parser)
    add_yes(parser, "make the changes")
    parser.add_argument("--reboot", action="store_true", help="with --yes: reboot hosts where a change needs it")
    parser.add_argument(
        "--remove", action="store_true", help="also remove services that are no longer in the inventory"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="send packages and weights from the folder that rigup lock --vendor wrote",
    )
    parser.add_argument("--events", action="store_true", help="print progress on standard error as JSON lines")
    parser.add_argument("--break-lease", action="store_true", help="override another run's lease on a host")
    rolling = parser.add_argument_group("rolling changes")
    add_number(rolling, "--rolling", "change one host first, then N at a time, once the previous are healthy")
    add_number(rolling, "--max-failures", "continue until more than M hosts have failed (default 0)", metavar="M")
    hosts.add_allow_outage(rolling)
    rolling.add_argument("--resume", action="store_true", help="continue the rollout that stopped")


def run(args: argparse.Namespace) -> int:
    """Runs apply and returns its exit code."""
    done = applied(args)
    if args.json and done.document is not None:
        print_json(done.document)
    return done.exit_code


class Applied(NamedTuple):
    """What came of an apply. document: the results for scripts; None where they are on the screen instead."""

    exit_code: int
    document: dict[str, Any] | None


def applied(args: argparse.Namespace) -> Applied:
    """Shows the changes, asks for confirmation, makes them, and verifies each service; for `up`, too."""
    _check_rolling(args)
    project, opened = hosts.open_run(args, hosts.plain_run)  # first, because it starts connecting to the hosts
    from rigup.cli.output import results as summary
    from rigup.operations.driver import reboots
    from rigup.operations.primitives import jobs
    from rigup.operations.service.health import QUESTION
    from rigup.run.result import exit_code

    out = lines(stderr=args.json)
    with hosts.watched(opened, args.events) as (run, view):
        rollout = None
        if args.rolling:
            from rigup.cli.sessions.rollout import RollingApply  # rarely needed

            rollout = RollingApply(args, project, run, out)
        run.break_leases = args.break_lease
        with view:
            run.connect(take_lease=rollout is not None)
            run.compare(take_lease=True)
        results = list(run.results.values())
        summary.show_left_over(run, out)
        summary.show_broken_leases(run, out)
        changes = bool(summary.show_changes(results, out))
        _show_who_shares(run, out)
        if changes:
            summary.show_how_long(run, out)
            summary.show_estimate(run, {} if args.yes else _line_speeds(run, view), out)
        if rollout:
            changes = rollout.begins()
        if changes and not agreed(args, out, "Make these changes?"):
            if rollout:
                rollout.rolling.end()
            return Applied(1, _document(run, rollout) if args.json else None)
        if args.reboot or not args.yes:
            reboots.permit()  # the confirmed list of changes names the steps that may reboot
        if rollout:
            rollout.carry_out(view)
        else:
            with view:
                run.execute()
    document = None
    if args.json:
        document = _document(run, rollout)
    else:
        summary.show_answers(results, QUESTION, out)
        _how_to_look_around(results, run.plans, out)
        if run.transfers:
            from rigup.cli.output import weights_shares

            weights_shares.show(run.transfers, out)
        summary.show_results(results, out)
    if rollout:
        rollout.show_end()
    return Applied(130 if rollout and jobs.cancelled() else exit_code(results), document)


def _document(run: Run, rollout: RollingApply | None) -> dict[str, Any]:
    """The results for scripts. If the user declined, hosts have the state "differs" or "not begun"."""
    from rigup.cli.output import results as summary

    document = summary.as_json(run.results.values())
    if rollout:
        document["rollout"] = rollout.outcome()
    if run.transfers:
        from rigup.cli.output.json_documents.runs import SharedWeights

        document["weights"] = [SharedWeights.of(summary) for summary in run.transfers]
    return document


def _show_who_shares(run: Run, out: Lines) -> None:
    if len(run.results) > 1 and any(change.role == "weights" for one in run.results.values() for change in one.changes):
        from rigup.cli.output import weights_shares  # rarely needed

        weights_shares.show_foreseen(run, out)


def _line_speeds(run: Run, view: ProgressView) -> dict[str, float]:
    if not any("weights" in result.pending_steps for result in run.results.values()):
        return {}
    from rigup.run.weights.line_speeds import line_speeds  # few runs download weights

    with view:
        return line_speeds(run.context)


def _check_rolling(args: argparse.Namespace) -> None:
    """Raises InputError for numbers out of range, and for options that require --rolling."""
    if args.rolling is None:
        for option, given in (
            ("--resume", args.resume),
            ("--max-failures 1", args.max_failures is not None),
            ("--allow-outage", args.allow_outage),
        ):
            if given:
                raise InputError(f"{option.split()[0]} requires --rolling", f"rigup apply --rolling 2 {option}")
    elif args.rolling < 1:
        raise InputError(
            f"--rolling: {args.rolling}: must be 1 or more", "give the number of hosts to change at a time"
        )
    if args.max_failures is not None and args.max_failures < 0:
        raise InputError(
            f"--max-failures: {args.max_failures}: must be 0 or more", "pass 0 to stop at the first failed host"
        )


def _how_to_look_around(results: list[HostResult], plans: dict[str, Any], out: Lines) -> None:
    for result in results:
        for plan in plans[result.host] if result.ok and result.changes else ():
            address = f"{plan.service.listen}:{plan.service.port}"
            models = ", ".join(each.served_name for each in plan.members or (plan,))
            out.say(
                f"\n{result.host} serves {models} on {address}: "
                f"systemctl status {unit_name(plan.service.name)}, journalctl -u {unit_name(plan.service.name)}"
            )
