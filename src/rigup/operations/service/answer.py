"""What services have answered in this run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Answer(NamedTuple):
    """A service's answer. seconds: the whole request; tokens_per_second: as the engine reports it.

    model: of a swap group, the name of the model that was resident.
    """

    host: str
    service: str
    text: str
    tokens: int
    seconds: float
    tokens_per_second: float
    model: str = ""


@dataclass
class Answers:
    """The answers of a host's services in this run."""

    by_service: dict[str, Answer] = field(default_factory=dict)
