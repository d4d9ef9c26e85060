"""The evaluation harness and its default tasks."""

import functools
import tomllib
from pathlib import Path

from rigup.units import Frozen

FILE = Path(__file__).parents[1] / "data" / "evaluation.toml"


class Evaluation(Frozen):
    """project, extra: on the package index. excludes: packages to leave out. limit: number of questions per task."""

    project: str
    extra: str
    excludes: tuple[str, ...]
    tasks: tuple[str, ...]
    limit: int
    source: str


@functools.cache
def evaluation() -> Evaluation:
    """Reads the toolkit's file."""
    return Evaluation.model_validate(tomllib.loads(FILE.read_text()))
