"""What an engine's own code says of a plan, as a judge on the host printed it (docs/judges.md). Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from rigup.facts.bounds import json_of
from rigup.facts.engine_kernels import read_kernels
from rigup.facts.host_output import Count, Figure, HostOutput, Line, checked
from rigup.printable import one_line
from rigup.units import MIB

_OUTPUT = "the judge's answer"
# Errors by which engines say what they do not take. Any other, and any of somebody else's code, is the judge's own.
_REFUSING = ("ValueError", "ValidationError", "NotImplementedError", "AssertionError")
_COMPLETE = ("graphs", "ready")
_BUILDING = "configuration"
"""Reached before the model is built: an error that follows a repacking which was left out may come from that."""
USAGE = "error: "
"""What a line of a parser of arguments contains that refuses them."""


class _Stopped(HostOutput):
    by: Line
    message: Annotated[str, Field(max_length=2000)]
    package: Line = ""


class _Stage(HostOutput):
    weights_bytes: Count


class _Cache(HostOutput):
    tokens: Count
    requests: Figure


class _Answer(HostOutput):
    reached: Line
    stopped: _Stopped | None = None
    stages: Annotated[list[_Stage], Field(max_length=256)] = []
    cache: _Cache | None = None
    settled: Annotated[dict[Line, Line | bool | int | float | None], Field(max_length=100)] = {}
    not_repacked: Annotated[dict[Line, Count], Field(max_length=1000)] = {}
    log: Annotated[list[Line], Field(max_length=1000)] = []


@dataclass(frozen=True)
class Judgement:
    """What an engine says of a plan. refusal: in its words, "" for none. failed: why the judge did not get to its end.

    weights_mib: of the fullest rank. tokens: of the KV cache. requests: of the whole context that it holds at once.
    kernels: by the part of a step, as `read_kernels` has them.
    """

    refusal: str = ""
    failed: str = ""
    weights_mib: int | None = None
    tokens: int | None = None
    requests: float | None = None
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)


def parse(text: str, engine: str) -> Judgement:
    """The answer of a judge of this engine. Raises Unreadable."""
    answer = checked(_Answer, json_of(text, _OUTPUT), _OUTPUT)
    refusal = _refusal(answer, engine)
    stopped = answer.stopped if answer.reached not in _COMPLETE and not refusal else None
    weights = max((stage.weights_bytes for stage in answer.stages), default=None)
    return Judgement(
        refusal,
        f"{stopped.by}: {_first_line(stopped.message)}" if stopped else "",
        None if weights is None else weights // MIB,
        answer.cache.tokens if answer.cache else None,
        answer.cache.requests if answer.cache else None,
        read_kernels([*answer.log, *settled_lines(answer.settled)]).chosen,
    )


def settled_lines(settled: Mapping[str, Any]) -> list[str]:
    """What SGLang logs of its resolved arguments, of which the judge tells the values instead."""
    return [f"{name!r}: {value!r}" for name, value in settled.items()]


def _refusal(answer: _Answer, engine: str) -> str:
    stopped = answer.stopped
    if stopped is None or answer.reached in _COMPLETE:
        return ""
    if stopped.by == "SystemExit":
        said = [line.partition(USAGE)[2] for line in answer.log if USAGE in line]
        return one_line(said[-1]) if said else ""
    by_engine = stopped.by in _REFUSING and stopped.package in (engine, "pydantic")
    doubtful = answer.reached == _BUILDING and bool(answer.not_repacked)
    return _first_line(stopped.message) if by_engine and not doubtful else ""


def _first_line(message: str) -> str:
    """The text of an error on one line; of pydantic's the first problem alone."""
    found = re.search(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", message, re.DOTALL)
    return one_line(found[1] if found else message.strip().partition("\n")[0]).strip()
