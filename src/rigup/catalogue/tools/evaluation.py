"""The evaluation harness and its default tasks."""

from functools import cache

from rigup.catalogue.data_files import toolkit_facts
from rigup.units import Frozen


class Evaluation(Frozen):
    """project, extra: on the package index. excludes: packages to leave out. limit: number of questions per task."""

    project: str
    extra: str
    excludes: tuple[str, ...]
    tasks: tuple[str, ...]
    limit: int
    source: str


@cache
def evaluation() -> Evaluation:
    """Reads the toolkit's file."""
    return toolkit_facts("evaluation.toml", Evaluation)
