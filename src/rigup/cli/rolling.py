"""The part of `rigup apply` that changes hosts in batches, and says what to do next where it had to stop."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from rigup.cli.live import View
from rigup.fleet import rollout
from rigup.fleet.rolling import Rolling, why
from rigup.units import seconds_text

if TYPE_CHECKING:
    from rigup.fleet.inventory import Project
    from rigup.fleet.runner import Run


class RollingApply:
    """A rollout as the user sees it. Reads the one to go on with, and raises as `rollout.go_on` does."""

    rolling: Rolling

    def __init__(self, args: argparse.Namespace, project: Project, run: Run, console: Console) -> None:
        self.args, self.run, self.console = args, run, console
        if args.resume:
            self.kept = rollout.go_on(project, run.plans)
            return
        if earlier := rollout.waiting(project):
            began = escape(earlier.began)
            self._say(f"[yellow]the rollout of {began} was not ended: this one takes its place, unlike --resume[/]")
        self.kept = rollout.begin(project, run.plans)

    def begins(self) -> bool:
        """Shows which hosts are changed when, once they were compared. Returns whether any is."""
        self.rolling = Rolling(self.run, self.kept, self.args.rolling, self.args.max_failures or 0)
        if self.rolling.stopped:
            return False
        for number, batch in enumerate(self.rolling.batches):
            self._say(f"{_title(number)}: {escape(', '.join(batch))}")
        return bool(self.rolling.batches)

    def carry_out(self, view: View) -> None:
        """Carries the batches out, and says what came of each."""
        rolling = self.rolling
        with view:
            rolling.ask_the_rest()
        for number, batch in enumerate(rolling.due()):
            of = f" of {len(rolling.batches) - 1}" if number else ""
            self._say(f"[bold]{_title(number)}{of}[/]: {escape(', '.join(batch))}")
            with view:
                rolling.carry_out(batch)
            for name in batch:
                result = self.run.results[name]
                said = "[green]answers[/]" if result.ok else f"[red]{result.state}[/]"
                self._say(f"  {escape(name)}: {said} after {seconds_text(result.seconds)}")
        rolling.end()

    def show_end(self) -> None:
        """Who is done, who failed and why, who was not begun, and what to type next; nothing where all went well."""
        told = self.outcome()
        failed, not_begun = told["failed"], told["not_begun"]
        if problem := self.rolling.not_kept:
            self._say(f"[yellow]{escape(problem.message)}[/]; {escape(problem.hint or '')}")
        if told["next"] is None:
            return
        allowed = self.rolling.max_failures or "none"
        words = f"{len(failed)} host{'' if len(failed) == 1 else 's'} failed, {allowed} may"
        self._say(f"\n[bold]rollout {'stopped' if not_begun else 'ended'}[/]: {words}")
        rows = [("done", ", ".join(told["done"]))]
        rows += [("failed", f"{name}: {reason.removeprefix(f'{name}: ')}") for name, reason in failed.items()]
        rows += [("not begun", ", ".join(not_begun))]
        for title, text in rows:
            if text:
                self._say(f"  {title:<10} {escape(text)}")
        mend = f"put {', '.join(failed)} right, then: " if failed else ""
        self._say(f"next: {escape(mend + told['next'])}")

    def outcome(self) -> dict[str, Any]:
        """The rollout for scripts: the batches that were begun, who is done, failed or not begun, and what is next."""
        results = self.run.results
        not_begun = [name for name, result in results.items() if result.state == "not begun"]
        return {
            "rolling": self.rolling.size,
            "max_failures": self.rolling.max_failures,
            "batches": self.rolling.begun,
            "done": [name for name, result in results.items() if result.ok],
            "failed": {name: why(results[name]) for name in self.rolling.failed},
            "not_begun": not_begun,
            "not_kept": self.rolling.not_kept.message if self.rolling.not_kept else None,
            "next": command(self.args, self.kept.waits) if not_begun or self.rolling.failed else None,
        }

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


def command(args: argparse.Namespace, resume: bool) -> str:
    """What to type to go on, or to try once more where nothing was begun."""
    words = ["rigup", "apply", *([args.inventory] if args.inventory else [])]
    words += ["--limit", args.limit] if args.limit else []
    words += [f"--{name}" for name in ("yes", "reboot", "remove") if getattr(args, name)]
    words += ["--from", args.source] if args.source else []
    words += ["--ask-sudo-password"] if args.ask_sudo_password else []
    words += ["--rolling", str(args.rolling)]
    words += ["--max-failures", str(args.max_failures)] if args.max_failures else []
    return shlex.join([*words, *(["--resume"] if resume else [])])


def _title(number: int) -> str:
    return f"batch {number}" if number else "canary"
