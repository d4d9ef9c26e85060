"""Why an engine did not start, as its own log says it: the lines to look for are data, with their sources."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated

from pydantic import AfterValidator

from rigup.catalogue.data_files import DATA, read_file
from rigup.service import EngineName
from rigup.units import Frozen

LONGEST = 300


def _names_why(pattern: str) -> str:
    if "why" not in re.compile(pattern).groupindex:
        raise ValueError("must have a group `why`")
    return pattern


class StartFailure(Frozen):
    """One kind of line. pattern: a regular expression; its group `why` is shown. source: where the engine writes it."""

    engine: EngineName
    pattern: Annotated[str, AfterValidator(_names_why)]
    source: str


@cache
def start_failures() -> tuple[StartFailure, ...]:
    """All of them, the most telling of each engine first."""
    return read_file(DATA / "start_failures.toml", "start_failure", StartFailure)


def reason_in(log: Sequence[str], build: str) -> str:
    """The line of a start's log that says why it failed, cut to LONGEST; "" if none does.

    build: its name, which begins with the engine: "llama.cpp-b11434-3f2a".
    """
    for known in start_failures():
        if build.startswith(f"{known.engine}-"):
            found = next((found for line in log if (found := re.search(known.pattern, line))), None)
            if found:
                return found["why"].strip()[:LONGEST]
    return ""
