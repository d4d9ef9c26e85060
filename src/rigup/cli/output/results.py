"""Shows the results of a run: changes by host, answers, errors with hints; or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rigup.cli.output.lines import Lines, Part, lines
from rigup.errors import InputError
from rigup.run.drift import left_over
from rigup.run.result import HostResult
from rigup.units import bytes_text, seconds_text

if TYPE_CHECKING:
    from rigup.run.chains.timing import StepTime
    from rigup.run.runner import Run

COLOURS = {"unchanged": "green", "changed": "yellow", "differs": "yellow"}


def show_changes(results: list[HostResult], out: Lines) -> int:
    """Prints pending changes by host; returns their number."""
    for result in results:
        if not result.changes:
            continue
        out.say((result.host, "bold"), f": {len(result.changes)} to change")
        for change in result.changes:
            out.say("  ", ("~", "yellow"), f" {change.role:<8} {change.step}")
    return sum(len(result.changes) for result in results)


def show_how_long(run: Run, out: Lines) -> None:
    """Prints what of the changes takes minutes; hosts with the same ahead of them share the line."""
    from rigup.cli.output.foreseen import sentences  # a run that changes nothing goes without
    from rigup.facts.probe import Probe
    from rigup.operations.weights.checkpoint import step_name
    from rigup.operations.weights.upload import offered_bytes

    hosts: dict[tuple[str, ...], list[str]] = {}
    for name, result in run.results.items():
        plans, settings = run.plans[name], run.context.settings[name]
        offered: dict[str, int] = {}
        if wheelhouse := settings.packages.wheelhouse:
            offered = {step_name(one): offered_bytes(one, wheelhouse) for plan in plans for one in plan.checkpoints}
        found = sentences(plans, result.changes, result.probe or Probe(), settings, offered)
        hosts.setdefault(tuple(found), []).append(name)
    for words, names in hosts.items():
        where = "" if len(run.results) == 1 else f" on {names[0]}" + f" and {len(names) - 1} more" * (len(names) > 1)
        if words:
            out.say((f"this takes a while{where}: {'; '.join(words)}", "bold"))


def show_left_over(run: Run, out: Lines) -> None:
    """Prints services that are on hosts but not in the inventory, unless this run removes them."""
    for result in run.results.values():
        if result.probe is None or run.context.settings[result.host].remove:
            continue
        disabled = run.context.settings[result.host].disabled
        if names := left_over(result.probe, run.plans[result.host], disabled):
            words = f"{result.host}: not in the inventory: {', '.join(names)} (to remove: rigup apply --remove)"
            out.say((words, "yellow"))


def show_broken_leases(run: Run, out: Lines) -> None:
    """Prints the owners of the leases that this run has broken."""
    for host, lease in run.context.leases.items():
        if lease.broken:
            out.say((f"{host}: broke the lease held by {lease.broken}", "yellow"))


def show_failed(results: Iterable[HostResult], out: Lines | None = None) -> None:
    """Prints the outcome and errors of each host that failed, by default on standard error."""
    show_results([result for result in results if result.errors], out or lines(stderr=True))


def show_results(results: Iterable[HostResult], out: Lines) -> None:
    """Prints the outcome and errors of each host."""
    for result in results:
        colour = COLOURS.get(result.state, "red")
        count = len(result.changes)
        outcome = {
            "unchanged": "no changes",
            "changed": f"{count} change{'s' if count != 1 else ''}",
            "differs": f"{count} to change" if count else "differs from the plan",
            "pending": "no changes",
        }.get(result.state, result.state)
        took = f" in {seconds_text(result.seconds)}"
        if result.estimated_seconds is not None:
            took += f" (estimate {seconds_text(result.estimated_seconds)})"
        out.say((f"{result.host}: {outcome}", colour), took)
        if times := result.step_times:
            out.say("  ", *_steps(times))
        for error in result.errors:
            out.say("  ", (error.message, "red"))
            if error.hint:
                out.say(f"  hint: {error.hint}")


def _steps(times: Sequence[StepTime]) -> Iterator[Part]:
    """The time of each step, in bold those that the end waited for."""
    from rigup.run.chains.timing import in_words  # a run without changes has no steps

    for between, time in in_words(times):
        text = f"{time.step} {seconds_text(time.seconds)}"
        yield between
        yield (text, "bold") if time.critical else text


def show_estimate(run: Run, rates: Mapping[str, float], out: Lines) -> None:
    """Prints how long the host will take that takes longest, if earlier applies of the fleet tell it.

    rates: bytes per second at which hosts can download weights, as measured; without records they tell that part.
    """
    from rigup.preflight.checks import missing_weights
    from rigup.run.audit_log import kept_here
    from rigup.run.chains.estimate import estimate, kinds_of, newest_times

    records: list[dict[str, Any]] = []
    for host in run.results:
        with suppress(InputError):  # rigup log says why they cannot be read
            records += kept_here(host)
    found = []
    for name, result in run.results.items():
        if result.changes and result.probe:
            missing, rate = missing_weights(result.probe, run.plans[name]), rates.get(name)
            past = newest_times(records, kinds_of((change.role, change.step) for change in result.changes))
            if guess := estimate(result.pending_steps, past, missing, rate):
                result.estimated_seconds = guess.seconds
                found.append(guess)
            if rate:
                words = f"{name}: {bytes_text(missing)} of weights at {bytes_text(rate)}/s, as measured now"
                out.say(f"{words}: {seconds_text(missing / rate)}")
    if found:
        longest = max(found, key=lambda each: each.seconds)
        out.say(f"about {seconds_text(longest.seconds)}, as in earlier applies: ", *_steps(longest.times))


def show_answers(results: list[HostResult], question: str, out: Lines) -> None:
    """Prints the question and the answer of each newly started service."""
    for result in results:
        for answer in result.answers:
            if answer.tokens > 1:
                out.say("\n", (f"{answer.host} {answer.service}", "bold"), f": {question}")
                out.say(f"  {answer.text.strip()}")
                speed = f"{answer.tokens_per_second:.1f} tokens/s"
                out.say(f"  {answer.tokens} tokens in {seconds_text(answer.seconds)}, {speed}")


def as_json(results: Iterable[HostResult]) -> dict[str, Any]:
    """The results for scripts; schema 1."""
    from rigup.cli.output.json_documents.shared import HostOutcome

    return {"schema": 1, "hosts": [HostOutcome.of(result) for result in results]}
