"""What several documents have in common."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict

from rigup.run.chains.timing import StepTime
from rigup.run.result import Change

Schema = Literal[1]


class ErrorText(TypedDict):
    """An error: what is wrong, and what to do about it."""

    message: str
    hint: str | None


class ErrorDocument(TypedDict):
    """What every verb prints if it ends before it has a result."""

    schema: Schema
    error: ErrorText


class AnswerText(TypedDict):
    """The answer of a service that was asked after a start. seconds: the whole request."""

    service: str
    text: str
    tokens: int
    seconds: float
    tokens_per_second: float


class HostOutcome(TypedDict):
    """What came of one host. state: "unchanged", "changed", "differs", or how it failed.

    estimated_seconds: what was foreseen before the first change; null if nothing was.
    """

    host: str
    state: str
    changes: list[Change]
    errors: list[ErrorText]
    answers: list[AnswerText]
    seconds: float
    estimated_seconds: float | None
    steps: list[StepTime]


class FileAction(TypedDict):
    """A file of the fleet's folder. action: "created", "changed", "unchanged"."""

    path: str
    action: str


class CheckpointName(TypedDict):
    """A checkpoint. bytes: of its files."""

    repo: str
    quant: str
    bytes: int


class EngineName(TypedDict):
    """An engine's release."""

    name: str
    version: str


Manifest = dict[str, Any]
"""A release as the host keeps it: build, checkpoint, command, environment."""
