"""The last look at a command: no option and no variable of the engine's own that the pinned build does not know."""

from __future__ import annotations

import re

from rigup.catalogue.flags import is_own_variable
from rigup.plan import Finding
from rigup.planner.candidate import Candidate
from rigup.planner.rules.options import PACKAGE
from rigup.planner.rules.rule import engine_name
from rigup.render.command import Command

OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
OF_PYTHON = ("-m",)


def unknown_to_the_build(candidate: Candidate, rendered: Command) -> tuple[Finding, ...]:
    """Why a command cannot be sent, a finding for each name; what the service allows is left out."""
    words = {word.partition("=")[0] for word in rendered.words[1:] if OPTION.match(word)}
    options = {word.partition(".")[0].replace("_", "-") for word in words if word not in OF_PYTHON}
    variables = {name for name in rendered.environment if is_own_variable(candidate.engine.name, name)}
    found = [("unknown-option", "option", name) for name in sorted(options - candidate.known_options)]
    found += [("unknown-variable", "variable", name) for name in sorted(variables - candidate.known_variables)]
    return tuple(
        Finding(
            rule=rule,
            message=f"{engine_name(candidate)} has no {what} {name}, which the plan would send",
            hint="name a version that rigup has been tried with",
            source=PACKAGE,
        )
        for rule, what, name in found
        if rule not in candidate.service.allow
    )
