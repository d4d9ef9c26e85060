"""The final check of a command: the pinned build must know every option, and every variable of the engine."""

from __future__ import annotations

import re

from rigup.catalogue.option_names import is_own_variable
from rigup.commands.command import Command
from rigup.plan import Finding
from rigup.planner.candidate import Candidate
from rigup.planner.rules.options import PACKAGE
from rigup.planner.rules.rule import engine_name

OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
OF_PYTHON = ("-m",)


def unknown_options(candidate: Candidate, rendered: Command) -> tuple[Finding, ...]:
    """A finding for each name that the build does not know, unless the service allows it."""
    words = {word.partition("=")[0] for word in rendered.words[1:] if OPTION.match(word)}
    options = {word.partition(".")[0].replace("_", "-") for word in words if word not in OF_PYTHON}
    variables = {name for name in rendered.environment if is_own_variable(candidate.engine.name, name)}
    found = [("unknown-option", "option", name) for name in sorted(options - candidate.known_options)]
    found += [("unknown-variable", "variable", name) for name in sorted(variables - candidate.known_variables)]
    return tuple(
        Finding(
            rule=rule,
            message=f"{engine_name(candidate)} does not have the {what} {name} that the plan uses",
            hint="use a version that rigup has been tested with",
            source=PACKAGE,
        )
        for rule, what, name in found
        if rule not in candidate.service.allow
    )
