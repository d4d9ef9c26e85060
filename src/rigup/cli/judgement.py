"""`rigup plan --ask HOST`: what the engines on hosts say of the plans of those hosts."""

from __future__ import annotations

import argparse
from typing import Any

from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json
from rigup.cli.sessions import session as hosts
from rigup.errors import InputError
from rigup.facts.judgement import Judgement
from rigup.operations.judgement import refusal, text_of
from rigup.plan import Plan
from rigup.run.judgement import JudgementRun
from rigup.run.result import exit_code


def run(args: argparse.Namespace) -> int:
    """Asks, shows what was said, and returns 1 where an engine refuses a plan."""
    args.limit = args.ask
    try:
        _, opened = hosts.open_run(args, lambda: JudgementRun)
    except InputError as error:
        raise InputError(error.message.replace("--limit:", "--ask:", 1), error.hint) from None
    with hosts.watched(opened) as (found, view), view:
        found.connect(take_lease=True)
        found.ask()
    results = list(found.results.values())
    if args.json:
        print_json(as_json(found))
    else:
        console = Console(highlight=False)
        for name, said in found.judgements.items():
            for plan, judgement in said:
                console.print(f"{name}: {plan.service.name}: {_text(plan, judgement)}", markup=False, soft_wrap=True)
        summary.show_failed(results, console)
    return exit_code(results)


def _text(plan: Plan, judgement: Judgement | None) -> str:
    assert plan.build is not None
    if judgement is None:
        return f"{plan.build.engine} {plan.build.version} as {plan.build.method} has no judge"
    if judgement.refusal:
        message, hint = refusal(plan, judgement)
        return f"{message}\nhint: {hint}"
    return text_of(plan, judgement)


def as_json(found: JudgementRun) -> dict[str, Any]:
    """What each engine said, for scripts. Within a schema, keys are only added."""
    rows = []
    for name, result in found.results.items():
        said = [
            {
                "service": plan.service.name,
                "engine": plan.build.engine if plan.build else "",
                "version": plan.build.version if plan.build else "",
                "asked": judgement is not None,
                "refusal": judgement.refusal if judgement else "",
                "failed": judgement.failed if judgement else "",
                "weights_mib": judgement.weights_mib if judgement else None,
                "kv_cache_mib": judgement.fullest.cache if judgement and judgement.fullest else None,
                "buffers_mib": judgement.fullest.buffers if judgement and judgement.fullest else None,
                "kv_tokens": judgement.tokens if judgement else None,
                "planned_kv_tokens": plan.kv_tokens,
                "kernels": judgement.kernels if judgement else {},
            }
            for plan, judgement in found.judgements.get(name, ())
        ]
        state = {"unchanged": "taken", "differs": "refused"}.get(result.state, result.state)
        rows.append(
            {"host": name, "state": state, "services": said, "errors": [error.as_json() for error in result.errors]}
        )
    return {"schema": 1, "hosts": rows}
