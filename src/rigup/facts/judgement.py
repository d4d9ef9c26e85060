"""What an engine's own code says of a plan, as a judge on the host printed it (docs/judges.md). Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any

from pydantic import Field

from rigup.facts.bounds import Unreadable, json_of
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
# A line of llama.cpp's judge (programs/judge/llama_cpp/sizes.cpp): bytes of model, context and buffers on a device.
_SIZES = re.compile(r"^(model|draft|own-draft) (\S+) (\d+) (\d+) (\d+)$", re.MULTILINE)
_OWN_DRAFT = "own-draft"
"""A draft of the model's own layers: its weights are the model's."""
_MOST_DIGITS = 15
_ENDED, _ENDED_WELL = "exit ", "exit 0"
# How llama-server b11434 says what it does not take: its parser, its loader, its context.
_LLAMA_CPP_REFUSES = (
    re.compile(r"^(error(?: while handling argument \S+)?: .*)$", re.MULTILINE),
    re.compile(r"error loading model: (?!llama_model_loader: failed to load)(.*)$", re.MULTILINE),
    re.compile(r"llama_init_from_model: (.*)$", re.MULTILINE),
)
# A file that the judge does not see may be there for the service.
_ABOUT_FILES = re.compile(r"open file|not a directory|no such file|failed to read", re.IGNORECASE)
# Of what an engine raises while it builds a model, what may come from values of tensors that have none.
_DOUBTED = {"sglang": ("AssertionError",)}
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
class CardUse:
    """MiB of one card: of weights, KV cache, buffers, and what the plan counts beside for CUDA."""

    weights: int
    cache: int
    buffers: int
    beside: int

    @property
    def mib(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.buffers + self.beside

    @property
    def text(self) -> str:
        """In a sentence."""
        weights, cache, buffers, beside = (f"{part / 1024:.1f}" for part in astuple(self))
        parts = f"{weights} of weights, {cache} of KV cache, {buffers} of buffers, {beside} counted for CUDA"
        return f"{self.mib / 1024:.1f} GiB ({parts})"


@dataclass(frozen=True)
class Judgement:
    """What an engine says of a plan. refusal: in its words, "" for none. failed: why the judge did not get to its end.

    fullest: what the card with the least room to spare holds, where each was told. weights_mib: of the fullest rank.
    tokens: of the KV cache. requests: of the whole context that it holds at once. kernels: by the part of a step, as
    `read_kernels` has them.
    """

    refusal: str = ""
    failed: str = ""
    weights_mib: int | None = None
    tokens: int | None = None
    requests: float | None = None
    fullest: CardUse | None = None
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
        kernels=read_kernels([*answer.log, *settled_lines(answer.settled)]).chosen,
    )


def parse_sizes(text: str, indices: Sequence[int], free_mib: Sequence[int], beside_mib: Sequence[int]) -> Judgement:
    """The answer of llama.cpp's judge: what it wrote, and "exit" with its status. Raises Unreadable.

    indices, free_mib, beside_mib: of each card in the plan's order; free_mib is () where it is not known.
    """
    held: dict[str, list[int]] = {}
    for what, device, *sizes in _SIZES.findall(text):
        if any(len(size) > _MOST_DIGITS for size in sizes):
            raise Unreadable(f"{_OUTPUT}: {device}: a number is too large")
        weights, *others = map(int, sizes)
        parts = (0 if what == _OWN_DRAFT else weights, *others)
        held[device] = [sum(pair) for pair in zip(held.get(device, (0, 0, 0)), parts, strict=True)]
    lines = [line for line in text.splitlines() if line.strip()] or [""]
    if not held or lines[-1] != _ENDED_WELL:
        said = next((match[1] for pattern in _LLAMA_CPP_REFUSES if (match := pattern.search(text))), "")
        last = lines[-2:-1] if lines[-1].startswith(_ENDED) else lines[-1:]
        if said and not _ABOUT_FILES.search(said):
            return Judgement(one_line(said))
        return Judgement(failed=one_line(said or "".join(last)) or "no answer")
    uses = []
    for place, beside in enumerate(beside_mib):
        weights, cache, buffers = (size // MIB for size in held.get(f"CUDA{place}", (0, 0, 0)))
        uses.append(CardUse(weights, cache, buffers, beside))
    room = list(free_mib) or [0] * len(uses)
    place = min(range(len(uses)), key=lambda at: room[at] - uses[at].mib)
    use = uses[place]
    lacks = bool(free_mib) and use.mib > room[place]
    refusal = f"GPU {indices[place]} needs {use.text}, and {room[place] / 1024:.1f} GiB are free" if lacks else ""
    return Judgement(refusal, weights_mib=max(one.weights for one in uses), fullest=use)


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
    doubtful = answer.reached == _BUILDING and (bool(answer.not_repacked) or stopped.by in _DOUBTED.get(engine, ()))
    return _first_line(stopped.message) if by_engine and not doubtful else ""


def _first_line(message: str) -> str:
    """The text of an error on one line; of pydantic's the first problem alone."""
    found = re.search(r"(?:Value error|Assertion failed), (.*?)(?: \[type=|$)", message, re.DOTALL)
    return one_line(found[1] if found else message.strip().partition("\n")[0]).strip()
