"""What an engine reserves of a GPU for a step, as its own code said where no card was: so far llama.cpp.

`python -m tests.oracle.buffers` writes the tables, one a release (docs/judges.md). They are by the shape of a model, so
that a model of the same shape, trained further, has them as well.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from rigup.catalogue.asked_releases import nearest_release
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.data_files import DATA
from rigup.catalogue.model import Model
from rigup.regular_files import read_text
from rigup.service import EngineName
from rigup.units import MIB

FOLDER = DATA / "engines" / "buffers"
SMALL, LARGE = 512, 2048
"""Micro-batches that were asked about: llama.cpp's own, and the largest that rigup chooses."""
GPUS = 4
"""Several, as they were asked about."""
Position = Literal["only", "first", "middle", "last"]
Hosted = Literal["none", "some", "all"]
"""Which experts of a GPU's layers are in the host's memory; of "some" and "all", no step is pipelined."""
Points = tuple[tuple[int, float], ...]


class BatchShape(NamedTuple):
    """What a step works on. context: tokens of a slot, at which its own can look. slots: streams of the cache.

    whole: the weights are 16 bits wide.
    """

    context: int
    slots: int
    micro_batch: int
    whole: bool = False


class Curve(NamedTuple):
    """MiB by tokens of a slot's context, in one slot; what each further slot adds, and weights of 16 bits.

    On one of several GPUs, it is that of as many layers as four have: less: of each that it has less. more: or more.
    """

    points: Points
    slot: float = 0.0
    whole: float = 0.0
    less: float = 0.0
    more: float = 0.0

    def mib(self, batch: BatchShape) -> float:
        """Between two points on the line through them; before the first as there, behind the last along the line."""
        after = min(max(1, bisect_left(self.points, (batch.context, 0.0))), len(self.points) - 1)
        (start, low), (end, high) = self.points[after - 1], self.points[after]
        found = low + (high - low) * (max(batch.context, start) - start) / (end - start)
        return found + self.slot * (batch.slots - 1) + self.whole * batch.whole


class Reserved(NamedTuple):
    """Of a GPU at one place, by micro-batch."""

    small: Curve
    large: Curve

    def bytes(self, batch: BatchShape, layers: float = 0) -> float:
        """Of so many layers more than a GPU has that is one of four, which may be less than nothing.

        In proportion to the micro-batch above the larger one, as of the smaller one below that.
        """
        small, large = (curve.mib(batch) + layers * (curve.more if layers > 0 else curve.less) for curve in self)
        return self._between(batch, small, large)

    def layer_bytes(self, batch: BatchShape) -> float:
        """The most that a layer adds."""
        return self._between(batch, *(curve.more for curve in self))

    def _between(self, batch: BatchShape, small: float, large: float) -> float:
        if batch.micro_batch >= LARGE:
            return large * batch.micro_batch / LARGE * MIB
        part = max(0, batch.micro_batch - SMALL) / (LARGE - SMALL)
        return (small + (large - small) * part) * MIB


class Buffers(NamedTuple):
    """Of a shape. copies: how many of the largest matrix a GPU holds that computes experts of the host."""

    copies: int
    places: Mapping[tuple[Position, Hosted], Reserved]


def is_whole(checkpoint: CheckpointEntry) -> bool:
    """Whether a file's weights are 16 bits wide."""
    return checkpoint.quant in ("BF16", "F16")


def asked_layers(layers: int, gpus: int, place: Position) -> int:
    """How many of a model's layers a GPU had at a place when it was asked about; the most of those between."""
    each, more = divmod(layers, gpus)
    at = {"only": 0, "first": 0, "middle": 1, "last": gpus - 1}[place]
    return each + (at < more)


@cache
def buffers_of(engine: EngineName, model: Model, version: str) -> Buffers | None:
    """What was said of a model of this shape, in this release or the nearest; None if nothing was."""
    release = nearest_release(FOLDER, engine, version)
    return _read(engine, release).get(model.shape) if release else None


def source_of(engine: EngineName, model: Model, version: str) -> str:
    """Who said so; "" if nobody did."""
    found = buffers_of(engine, model, version)
    release = nearest_release(FOLDER, engine, version)
    return f"docs/judges.md: buffers as {engine} {release} reserves them without a card" if found else ""


@cache
def _read(engine: EngineName, release: str) -> dict[str, Buffers]:
    content: dict[str, Any] = json.loads(read_text(FOLDER / f"{engine}-{release}.json"))
    return {
        shape: Buffers(
            places.pop("copies"),
            {
                (position, hosted): Reserved(*(_curve(curves[str(size)]) for size in (SMALL, LARGE)))
                for position, by_hosted in places.items()
                for hosted, curves in by_hosted.items()
            },
        )
        for shape, places in content["shapes"].items()
    }


def _curve(values: list[float]) -> Curve:
    """Of [MiB of a slot, of weights of 16 bits, of a layer less, of one more, tokens, MiB, tokens, MiB, ...]."""
    slot, whole, less, more, *rest = values
    points = tuple((int(tokens), mib) for tokens, mib in zip(rest[::2], rest[1::2], strict=True))
    assert all(one < other for (one, _), (other, _) in pairwise(points))
    return Curve(points, slot, whole, less, more)
