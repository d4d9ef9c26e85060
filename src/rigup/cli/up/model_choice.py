"""Which model `rigup up` serves: the one that the user names, or one of those that the rig can serve."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rigup.catalogue.catalogue import Catalogue
from rigup.cli.output.console import Console
from rigup.cli.output.fit import show_choices
from rigup.errors import InputError, Refused
from rigup.lock import Lock, load_lock
from rigup.plain_values import quoted
from rigup.planner.inputs.names import REPOSITORY, check_served
from rigup.planner.inputs.validation import suggestion
from rigup.project.fit_table import Fit, fits_of, in_order
from rigup.project.inventory import Project
from rigup.project.planning import plan_project
from rigup.rig import Rig
from rigup.service import location_of

MOST_CHOICES = 9
MOST_NAMED = 3


def service_of(model: str, catalogue: Catalogue) -> dict[str, Any]:
    """What group_data says of a service. Raises InputError for what nobody can find, with the nearest name."""
    try:
        if location := location_of(model):
            return {"checkpoint": location}
    except ValueError as error:
        raise InputError(f"MODEL: {quoted(model)}: {error}", "see docs/models.md, or omit it to choose") from None
    if REPOSITORY.fullmatch(model):
        return {"model": model}
    found = {name.lower(): known for name, known in catalogue.models_by_name.items()}.get(model.lower())
    if found is None:
        served = (known.name for known in catalogue.served)
        raise InputError(f"MODEL: unknown model {quoted(model)}", suggestion(model, served))
    check_served(found, "MODEL")
    return {"model": found.name}


def chosen_service(args: argparse.Namespace, rig: Rig, catalogue: Catalogue, lock: Lock) -> dict[str, Any]:
    """What the user picks of the models that fit, as `service_of`.

    Raises Refused if none fits, and InputError, naming the best, where nobody can be asked.
    """
    fits = fitting(rig, catalogue, lock)
    if not fits:
        raise Refused(
            f"{args.host}: nothing in the catalogue fits on {rig.text}", "add a smaller model: rigup model add"
        )
    if args.json or not sys.stdin.isatty():
        why = "omitted with --json" if args.json else "omitted, and standard input is not a terminal"
        raise InputError(f"MODEL: {why}", f"name one; the best that fits: {command(args, fits[0].model.name)}")
    listed = fits[:MOST_CHOICES]
    show_choices(rig, listed, len(fits), Console(highlight=False))
    return {"model": _answer(listed, fits).model.name}


def _answer(listed: Sequence[Fit], fits: Sequence[Fit]) -> Fit:
    """The fit that the user names, by number or by name; Enter takes the first."""
    by_name = {fit.model.name.lower(): fit for fit in fits}
    by_number = {str(number): fit for number, fit in enumerate(listed, 1)}
    while True:
        try:
            said = input("Which one? [1] ").strip().lower() or "1"
        except EOFError:
            raise KeyboardInterrupt from None
        if found := by_number.get(said) or by_name.get(said):
            return found
        print(f"{said}: not in the list; write a number from 1 to {len(listed)}, or a name")


def fitting(rig: Rig, catalogue: Catalogue, lock: Lock) -> list[Fit]:
    """The models that a rig can serve, as `rigup fit` orders them."""
    return in_order((fit for fit in fits_of(rig, catalogue, lock) if fit.decision), "quality")


def check_fits(args: argparse.Namespace, project: Project, catalogue: Catalogue) -> None:
    """Raises Refused, with every reason and with models that fit, where a plan of the host is refused."""
    lock = load_lock(project.lock_path)
    plans = [plan for plan in plan_project(project, lock, catalogue) if plan.verdict == "refused"]
    if not plans:
        return
    findings = [(plan, finding) for plan in plans for finding in plan.refusals]
    lines = [
        f"{plan.host}: {plan.service.model or plan.service.name}: {one.message} [{one.rule}]" for plan, one in findings
    ]
    hints = list(dict.fromkeys(one.hint for _, one in findings if one.hint))
    if others := [fit.model.name for fit in fitting(plans[0].rig, catalogue, lock)[:MOST_NAMED]]:
        more = f" (or {' or '.join(others[1:])})" if others[1:] else ""
        hints.append(f"the best that fits: {command(args, others[0])}{more}")
    raise Refused("\n       ".join(lines), "; ".join(hints) or None)


def command(args: argparse.Namespace, model: str) -> str:
    """The command that serves this model on the same host."""
    return f"rigup up {args.host} {model}"
