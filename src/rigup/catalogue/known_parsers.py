"""Which parsers of tool calls and reasoning belong to which model, by the name of its repository."""

import functools
import re

from rigup.catalogue.data_files import DATA, read_entries
from rigup.catalogue.model import ParserNames
from rigup.service import EngineName
from rigup.units import Frozen


class KnownParsers(Frozen):
    """The parsers of the models whose repositories have one of these names, or begin or end with more than it.

    sources: by engine.
    """

    names: tuple[str, ...]
    vllm: ParserNames | None = None
    sglang: ParserNames | None = None
    sources: dict[EngineName, str]

    @property
    def by_engine(self) -> dict[EngineName, ParserNames]:
        """The parsers, as a model has them."""
        named: dict[EngineName, ParserNames | None] = {"vllm": self.vllm, "sglang": self.sglang}
        return {engine: names for engine, names in named.items() if names is not None}

    def matches(self, repo: str) -> bool:
        """Whether a repository's name has one of the names: "GLM-5" is in "org/GLM-5-FP8" and not in "org/GLM-5.1"."""
        name = repo.rpartition("/")[2]
        return any(re.search(rf"{re.escape(known)}(?!\d|\.\d)", name, re.IGNORECASE) for known in self.names)


def parsers_of(repo: str) -> KnownParsers | None:
    """What is known of the parsers of a model, by the name of a repository that holds it; None if nothing is."""
    return next((known for known in _known() if known.matches(repo)), None)


@functools.cache
def _known() -> tuple[KnownParsers, ...]:
    return read_entries(DATA / "parsers", "parsers", KnownParsers)
