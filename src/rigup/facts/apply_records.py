"""Parses the records of applies, as lines of a file on this machine or on a host. Pure."""

from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import Field

from rigup.facts.bounds import Unreadable, json_of
from rigup.facts.host_output import Figure, HostOutput, Line, checked

MOST_LINES = 2000
"""The maximum number of records to read, on this machine or from a host: the last ones."""


class _RecordedGpu(HostOutput):
    measured_mib: Figure | None = None
    planned_mib: Figure


class _SavedMemory(HostOutput):
    gpus: list[_RecordedGpu]


class _SavedStep(HostOutput):
    """The time of a step in a record."""

    step: Line
    seconds: Figure
    beside: bool
    critical: bool
    bytes: Annotated[int, Field(ge=0, le=2**62)] = 0


class SavedRecord(HostOutput):
    """A record as stored in a file, on this machine or on a host."""

    schema_: Literal[1] = Field(alias="schema")
    host: Line
    when: Line
    who: Line
    verb: Line
    result: Line
    seconds: Figure
    rigup: Line
    lock: Line
    commit: Line
    services: dict[str, str]
    changes: list[str]
    errors: list[str]
    memory: dict[str, _SavedMemory] = {}
    steps: list[_SavedStep] = []


def parse(text: str) -> list[dict[str, Any]]:
    """Records from lines; incomplete or damaged lines are skipped."""
    found: list[dict[str, Any]] = []
    for line in text.split("\n")[-MOST_LINES:]:
        with suppress(Unreadable):
            record = json_of(line, "record")
            checked(SavedRecord, record, "record")
            found.append(record)
    return found
