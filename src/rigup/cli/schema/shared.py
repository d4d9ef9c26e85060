"""What several documents have in common."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

Schema = Literal[1]


class ErrorText(TypedDict):
    """An error: what is wrong, and what to do about it."""

    message: str
    hint: str | None


class ErrorDocument(TypedDict):
    """What every verb prints if it ends before it has a result."""

    schema: Schema
    error: ErrorText


class Change(TypedDict):
    """A step that changed a host, or that would."""

    role: str
    step: str


class AnswerText(TypedDict):
    """The answer of a service that was asked after a start. seconds: the whole request."""

    service: str
    text: str
    tokens: int
    seconds: float
    tokens_per_second: float


class StepSeconds(TypedDict):
    """The time of one step. beside: it ran beside others. critical: the end of the run waited for it."""

    step: str
    seconds: float
    beside: bool
    critical: bool
    bytes: NotRequired[int]


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
    steps: list[StepSeconds]


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
