"""Parses the output lines of the benchmark client; the only place that does.

The client runs on a host and repeats what an engine sends; neither is trusted.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rigup.facts.gpu_load import GpuLoad
from rigup.facts.host_output import MOST_GPUS
from rigup.printable import printable

MOST_BYTES = 1 << 22
MOST_LEVELS = 1000
MOST_PARTS = 1000
MOST_ROWS = 1000
MOST_FAILURES = 10_000

Text = Annotated[str, Field(max_length=4000), AfterValidator(printable)]
Count = Annotated[int, Field(ge=0, le=1 << 50)]
# keep types: an integer stays an integer
Number = Annotated[int | float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
Numbers = Annotated[list[Number], Field(max_length=MOST_PARTS)]


class _BenchOutput(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class EndpointLine(_BenchOutput):
    """The measured endpoint."""

    url: Text
    model: Text
    engine: Text
    version: Text
    context: Count | None
    api: Text
    prompts: Text
    ignores_eos: bool
    counts_tokens: bool


class ProgressLine(_BenchOutput):
    """Progress of a level."""

    concurrency: Count
    input: Count
    output: Count
    phase: Literal["run-in", "window", "last answers"]
    elapsed_s: Number
    of_s: Number | None
    of_requests: Count | None
    open: Count
    ended: Count
    failed: Count
    tokens: Count


class SkippedLine(_BenchOutput):
    """A level that exceeds the endpoint's context."""

    input: Count
    output: Count
    why: Text


class RequestCounts(_BenchOutput):
    """Numbers of requests of a level."""

    counted: Count
    all: Count
    failed: Count
    broken_off: Count


class RateLine(_BenchOutput):
    """A rate per second, for the level and for parts of it."""

    mean: Number
    parts: Numbers


class PartsLine(_BenchOutput):
    """A distribution in parts of the level."""

    mean: Numbers
    p50: Numbers
    p99: Numbers


class LatencyLine(_BenchOutput):
    """A latency distribution in milliseconds."""

    count: Count
    mean: Number
    p50: Number
    p95: Number
    p99: Number
    most: Number
    parts: PartsLine


class Bounds(_BenchOutput):
    """Minimum and maximum."""

    least: Count
    most: Count


class RequestLine(_BenchOutput):
    """One request."""

    name: Text
    started_s: Number
    ttft_ms: Number
    tpot_ms: Number | None
    seconds: Number
    tokens: Count
    prompt_tokens: Count | None


class EngineLoad(_BenchOutput):
    """The engine's load during the level, from its metrics."""

    running_most: Count
    running: Number
    queued_most: Count
    queued: Number
    capped: bool
    samples: Count


class Lateness(_BenchOutput):
    """How late packets were read, in milliseconds."""

    p50: Number
    p99: Number
    most: Number


class ClientLoad(_BenchOutput):
    """Load of the client itself."""

    busy: Number
    late_ms: Lateness | None


class LevelLine(_BenchOutput):
    """The result of one level."""

    concurrency: Count
    input: Count
    output: Count
    complete: bool
    requests: RequestCounts
    failures: Annotated[dict[Text, Count], Field(max_length=MOST_FAILURES)]
    window_s: Number
    output_tokens_per_second: RateLine
    prompt_tokens_per_second: RateLine
    requests_per_second: RateLine
    ttft_ms: LatencyLine | None
    tpot_ms: LatencyLine | None
    itl_ms: LatencyLine | None
    request_ms: LatencyLine | None
    prompt_tokens: Bounds | None
    output_tokens: Bounds | None
    tokens_per_event: Number
    each: Annotated[list[RequestLine], Field(max_length=MOST_ROWS)]
    engine: EngineLoad | None
    gpus: Annotated[list[GpuLoad], Field(max_length=MOST_GPUS)]
    client: ClientLoad


class ClientMachine(_BenchOutput):
    """The machine that ran the client."""

    python: Text
    machine: Text


class EndLine(_BenchOutput):
    """The last line."""

    complete: bool
    why: Text
    client: ClientMachine


class FailureLine(_BenchOutput):
    """The last line if the client failed."""

    kind: Literal["input", "unreachable", "failed"]
    message: Text
    hint: Text


class Line(_BenchOutput):
    """One line: exactly one of these fields."""

    endpoint: EndpointLine | None = None
    progress: ProgressLine | None = None
    left_out: SkippedLine | None = None
    level: LevelLine | None = None
    end: EndLine | None = None
    error: FailureLine | None = None


def read_line(line: str | bytes) -> Line | None:
    """Parses a line; None for a line of another program. Raises ValueError for an invalid one."""
    if len(line) > MOST_BYTES:
        raise ValueError("a line is too long")
    if line.lstrip()[:1] not in ("{", b"{"):
        return None
    try:
        return Line.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            return None
        raise ValueError(f"{_place(first['loc'])} {first['msg'][:200]}") from None


def _place(parts: tuple[int | str, ...]) -> str:
    return printable(".".join(str(part) for part in parts)[:200])
