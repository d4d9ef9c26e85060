"""The rolling part of `rigup apply`: changes hosts in batches and prints the next command if it stops."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from rigup.cli.output.lines import Lines
from rigup.cli.output.progress import ProgressView
from rigup.project.inventory import Project
from rigup.run import rollout_state
from rigup.run.gateways.drains import GatewayDrains, check_gateways, patience_of
from rigup.run.gateways.moves import check_moves
from rigup.run.rollout import RolloutBatches, why
from rigup.run.runner import Run
from rigup.units import seconds_text


class RollingApply:
    """The command-line view of a rollout. Reads the rollout to resume; raises like `rollout_state.resume`."""

    rolling: RolloutBatches

    def __init__(self, args: argparse.Namespace, project: Project, run: Run, out: Lines) -> None:
        self.args, self.run, self.out = args, run, out
        if not args.allow_outage:
            check_gateways(project.hosts, project.everyone)
        if args.resume:
            self.saved = rollout_state.resume(project, run.plans)
            return
        if earlier := rollout_state.unfinished(project):
            out.say((f"replacing the unfinished rollout of {earlier.began} (--resume would continue it)", "yellow"))
        self.saved = rollout_state.start(project, run.plans)

    def begins(self) -> bool:
        """Shows the batches after the comparison. Returns whether there is any."""
        context, everyone = self.run.context, self.run.context.project.everyone
        names = [name for name, settings in context.settings.items() if settings.gateway]
        patience, outage = patience_of(everyone), self.args.allow_outage
        drains = GatewayDrains(context.state, names, context.results, patience, outage) if names else None
        if drains:
            check_moves(context, drains)
        self.rolling = RolloutBatches(self.run, self.saved, self.args.rolling, self.args.max_failures or 0, drains)
        if self.rolling.stopped:
            return False
        for number, batch in enumerate(self.rolling.batches):
            self.out.say(f"{_title(number)}: {', '.join(batch)}")
        return bool(self.rolling.batches)

    def carry_out(self, view: ProgressView) -> None:
        """Applies the batches and shows the outcome of each."""
        rolling = self.rolling
        with view:
            rolling.ask_the_rest()
        for number, batch in enumerate(rolling.due()):
            of = f" of {len(rolling.batches) - 1}" if number else ""
            self.out.say((f"{_title(number)}{of}", "bold"), f": {', '.join(batch)}")
            with view:
                rolling.carry_out(batch)
            for name in batch:
                result = self.run.results[name]
                outcome = ("answers", "green") if result.ok else (result.state, "red")
                self.out.say(f"  {name}: ", outcome, f" after {seconds_text(result.seconds)}")
        rolling.end()

    def show_end(self) -> None:
        """Shows done, failed and not begun hosts and the next command; nothing if all went well."""
        outcome = self.outcome()
        failed, not_begun = outcome["failed"], outcome["not_begun"]
        if problem := self.rolling.not_saved:
            self.out.say((problem.message, "yellow"), f"; {problem.hint or ''}")
        if outcome["next"] is None:
            return
        allowed = self.rolling.max_failures or "none"
        words = f"{len(failed)} host{'' if len(failed) == 1 else 's'} failed, {allowed} allowed"
        self.out.say("\n", (f"rollout {'stopped' if not_begun else 'ended'}", "bold"), f": {words}")
        rows = [("done", ", ".join(outcome["done"]))]
        rows += [("failed", f"{name}: {reason.removeprefix(f'{name}: ')}") for name, reason in failed.items()]
        rows += [("not begun", ", ".join(not_begun))]
        for title, text in rows:
            if text:
                self.out.say(f"  {title:<10} {text}")
        repair = f"repair {', '.join(failed)}, then run: " if failed else ""
        self.out.say(f"next: {repair}{outcome['next']}")

    def outcome(self) -> dict[str, Any]:
        """The rollout for scripts: batches begun, hosts done, failed and not begun, and the next command."""
        results = self.run.results
        not_begun = [name for name, result in results.items() if result.state == "not begun"]
        return {
            "rolling": self.rolling.size,
            "max_failures": self.rolling.max_failures,
            "batches": self.rolling.begun,
            "done": [name for name, result in results.items() if result.ok],
            "failed": {name: why(results[name]) for name in self.rolling.failed},
            "not_begun": not_begun,
            "not_kept": self.rolling.not_saved.message if self.rolling.not_saved else None,
            "next": command(self.args, self.saved.exists) if not_begun or self.rolling.failed else None,
        }


def command(args: argparse.Namespace, resume: bool) -> str:
    """The command that continues the rollout, or retries it if nothing was begun."""
    words = ["rigup", "apply", *([args.inventory] if args.inventory else [])]
    words += ["--limit", args.limit] if args.limit else []
    flags = ("yes", "reboot", "remove", "allow_outage")
    words += [f"--{name.replace('_', '-')}" for name in flags if getattr(args, name)]
    words += ["--from", args.source] if args.source else []
    words += ["--ask-sudo-password"] if args.ask_sudo_password else []
    words += ["--rolling", str(args.rolling)]
    words += ["--max-failures", str(args.max_failures)] if args.max_failures else []
    return shlex.join([*words, *(["--resume"] if resume else [])])


def _title(number: int) -> str:
    return f"batch {number}" if number else "canary"
