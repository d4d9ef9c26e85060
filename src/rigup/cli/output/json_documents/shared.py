"""What several documents have in common."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

Schema = Literal[1]
Tenths = Annotated[float, AfterValidator(lambda number: round(number, 1))]
Hundredths = Annotated[float, AfterValidator(lambda number: round(number, 2))]
Thousandths = Annotated[float, AfterValidator(lambda number: round(number, 3))]
"""Numbers that are printed rounded."""
State = Annotated[str, AfterValidator(lambda state: "unchanged" if state == "pending" else state)]
"""Of a host. "pending" is one that was asked and needs no change."""


class Shown(BaseModel):
    """A part of a document that is made from an object, whose attributes have the names of its fields."""

    model_config = ConfigDict(frozen=True, from_attributes=True, validate_by_name=True, defer_build=True)

    @classmethod
    def of(cls, shown: Any) -> dict[str, Any]:
        """The part as plain values. shown: the object, or a mapping with what else some fields are made from."""
        return cls.model_validate(shown).model_dump(mode="json")


class ErrorText(Shown):
    """An error: what is wrong, and what to do about it."""

    message: str
    hint: str | None


class ErrorDocument(TypedDict):
    """What every verb prints if it ends before it has a result."""

    schema: Schema
    error: ErrorText


class AnswerText(Shown):
    """The answer of a service that was asked after a start. seconds: the whole request."""

    service: str
    text: str
    tokens: int
    seconds: float
    tokens_per_second: float


class ChangeText(Shown):
    """A step that would change, or did change, a host."""

    role: str
    step: str


class StepText(Shown):
    """How long a step took. critical: the end of the run waited for it. bytes: that it downloaded, if known."""

    step: str
    seconds: Tenths
    beside: bool
    critical: bool
    bytes: int = Field(default=0, exclude_if=lambda count: count == 0)


class HostOutcome(Shown):
    """What came of one host. state: "unchanged", "changed", "differs", or how it failed.

    estimated_seconds: what was foreseen before the first change; null if nothing was.
    """

    host: str
    state: State
    changes: list[ChangeText]
    errors: list[ErrorText]
    answers: list[AnswerText]
    seconds: Thousandths
    estimated_seconds: Tenths | None
    steps: list[StepText] = Field(validation_alias="step_times")


class FileAction(TypedDict):
    """A file of the fleet's folder. action: "created", "changed", "unchanged"."""

    path: str
    action: str


class ServiceOfHost(TypedDict):
    """A service, and its host."""

    host: str
    service: str


class CheckpointName(Shown):
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
