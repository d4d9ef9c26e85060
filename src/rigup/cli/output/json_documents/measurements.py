"""Documents of what was measured: `bench`, `eval`, `tune`."""

from typing import Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from rigup.bench.comparison import FigureChange
from rigup.bench.lines import ClientMachine, EndpointLine, LevelLine, SkippedLine
from rigup.catalogue.moe_configs import Measurement
from rigup.cli.output.json_documents.shared import HostOutcome, Hundredths, Schema, Shown, Thousandths
from rigup.evaluation.comparison import ScoreDifference
from rigup.plan import Parallel


class Measured(TypedDict):
    """What was measured. Of an endpoint outside the inventory only host and service are known, and `plan` is null."""

    host: str
    service: str
    plan: str | None
    group: NotRequired[str]
    engine: NotRequired[str]
    version: NotRequired[str]
    build: NotRequired[str | None]
    checkpoint: NotRequired[dict[str, Any] | None]
    parallel: NotRequired[Parallel]
    context: NotRequired[int | None]
    release: NotRequired[str | None]
    drift: NotRequired[list[str]]
    driver: NotRequired[str]
    gpus: NotRequired[list[str]]


class BenchResult(Measured):
    """One benchmark. file: where it was stored; null if it could not be."""

    schema: Schema
    file: str | None
    endpoint: EndpointLine
    began: str
    ended: str
    complete: bool
    why: str
    client: ClientMachine
    warmup: int
    left_out: list[SkippedLine]
    levels: list[LevelLine]
    notes: list[str]


class BenchDocument(TypedDict):
    """`rigup bench --json`."""

    schema: Schema
    results: list[BenchResult]
    failed: list[HostOutcome]


class DifferingCondition(TypedDict):
    """A condition in which two benchmarks differ."""

    name: str
    before: Any
    after: Any


class BenchComparison(TypedDict):
    """`rigup bench --compare BEFORE AFTER --json`."""

    schema: Schema
    conditions: list[DifferingCondition]
    changes: list[FigureChange]


class EvaluatedEndpoint(Measured):
    """What was evaluated. model: the name that was asked for."""

    model: str


class EvaluationResult(TypedDict):
    """One evaluation. harness: its version. tasks: scores by task."""

    schema: Schema
    file: str | None
    began: str
    seconds: float
    harness: str
    conditions: dict[str, Any]
    endpoint: EvaluatedEndpoint
    tasks: dict[str, dict[str, Any]]


class EvalDocument(TypedDict):
    """`rigup eval --json`."""

    schema: Schema
    results: list[EvaluationResult]
    failed: list[HostOutcome]


class DifferingSetting(TypedDict):
    """A condition in which two evaluations differ."""

    what: str
    before: Any
    after: Any


class EvalComparison(TypedDict):
    """`rigup eval --compare BEFORE AFTER --json`."""

    schema: Schema
    conditions: list[DifferingSetting]
    differences: list[ScoreDifference]


class GainFigures(Shown):
    """Kernel times with and without the tuned table, in microseconds."""

    wins: bool
    percent: Hundredths
    baseline_us: list[Thousandths] = Field(validation_alias="baseline")
    tuned_us: list[Thousandths] = Field(validation_alias="tuned")
    slower_tokens: list[int] = Field(validation_alias="slower")
    rows: list[Measurement]


class TuneDocument(TypedDict):
    """`rigup tune --json`. kept: the file, null if the result was not faster."""

    schema: Schema
    hosts: list[HostOutcome]
    kept: str | None
    gain: GainFigures | None
    triton: NotRequired[str]
