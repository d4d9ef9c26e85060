"""Shows the results of a run: changes by host, answers, errors with hints; or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from rigup.run.drift import left_over
from rigup.run.result import HostResult
from rigup.units import seconds_text

if TYPE_CHECKING:
    from rigup.run.runner import Run

COLOURS = {"unchanged": "green", "changed": "yellow", "differs": "yellow"}


def show_changes(results: list[HostResult], console: Console) -> int:
    """Prints pending changes by host; returns their number."""
    for result in results:
        if not result.changes:
            continue
        console.print(f"[bold]{escape(result.host)}[/]: {len(result.changes)} to change")
        for change in result.changes:
            console.print(f"  [yellow]~[/] {change.role:<8} {escape(change.step)}", highlight=False, soft_wrap=True)
    return sum(len(result.changes) for result in results)


def show_how_long(run: Run, console: Console) -> None:
    """Prints what of the changes takes minutes; hosts with the same ahead of them share the line."""
    from rigup.cli.output.foreseen import sentences  # a run that changes nothing goes without
    from rigup.facts.probe import Probe

    hosts: dict[tuple[str, ...], list[str]] = {}
    for name, result in run.results.items():
        limit, _ = run.context.settings[name].weights_limits
        found = sentences(run.plans[name], result.changes, result.probe or Probe(), limit)
        hosts.setdefault(tuple(found), []).append(name)
    for lines, names in hosts.items():
        where = "" if len(run.results) == 1 else f" on {names[0]}" + f" and {len(names) - 1} more" * (len(names) > 1)
        if lines:
            words = f"this takes a while{where}: {'; '.join(lines)}"
            console.print(words, style="bold", markup=False, highlight=False, soft_wrap=True)


def show_left_over(run: Run, console: Console) -> None:
    """Prints services that are on hosts but not in the inventory, unless this run removes them."""
    for result in run.results.values():
        if result.probe is None or run.context.settings[result.host].remove:
            continue
        disabled = run.context.settings[result.host].disabled
        if names := left_over(result.probe, run.plans[result.host], disabled):
            words = f"{result.host}: not in the inventory: {', '.join(names)} (to remove: rigup apply --remove)"
            console.print(words, style="yellow", markup=False, highlight=False, soft_wrap=True)


def show_broken_leases(run: Run, console: Console) -> None:
    """Prints the owners of the leases that this run has broken."""
    for host, lease in run.context.leases.items():
        if lease.broken:
            words = f"{host}: broke the lease held by {lease.broken}"
            console.print(words, style="yellow", markup=False, highlight=False, soft_wrap=True)


def show_results(results: list[HostResult], console: Console) -> None:
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
        line = f"[{colour}]{escape(result.host)}: {outcome}[/] in {seconds_text(result.seconds)}"
        console.print(line, highlight=False)
        for error in result.errors:
            console.print(f"  [red]{escape(error.message)}[/]", highlight=False, soft_wrap=True)
            if error.hint:
                console.print(f"  hint: {escape(error.hint)}", highlight=False, soft_wrap=True)


def show_answers(results: list[HostResult], question: str, console: Console) -> None:
    """Prints the question and the answer of each newly started service."""
    for result in results:
        for answer in result.answers:
            if answer.tokens > 1:
                service = f"[bold]{escape(answer.host)} {escape(answer.service)}[/]"
                console.print(f"\n{service}: {escape(question)}", highlight=False)
                console.print(f"  {escape(answer.text.strip())}", highlight=False, soft_wrap=True)
                speed = f"{answer.tokens_per_second:.1f} tokens/s"
                console.print(f"  {answer.tokens} tokens in {seconds_text(answer.seconds)}, {speed}", highlight=False)


def as_json(results: list[HostResult]) -> dict[str, Any]:
    """The results for scripts; schema 1."""
    return {"schema": 1, "hosts": [_host(result) for result in results]}


def _host(result: HostResult) -> dict[str, Any]:
    return {
        "host": result.host,
        "state": {"pending": "unchanged"}.get(result.state, result.state),
        "changes": [{"role": change.role, "step": change.step} for change in result.changes],
        "errors": [{"message": error.message, "hint": error.hint} for error in result.errors],
        "answers": [
            {
                "service": answer.service,
                "text": answer.text,
                "tokens": answer.tokens,
                "seconds": answer.seconds,
                "tokens_per_second": answer.tokens_per_second,
            }
            for answer in result.answers
        ],
        "seconds": round(result.seconds, 3),
    }
