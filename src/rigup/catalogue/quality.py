"""Rates how much quality a quantisation loses against the model that its maker publishes, in four levels.

A level follows from a published figure: the mean KL divergence of the next token, or the loss in benchmarks. The limits
between the levels are a judgement; docs/choice.md explains them.
"""

import re
from functools import cache, lru_cache
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.data_files import DATA, read_entries
from rigup.catalogue.model import Model
from rigup.units import Frozen

FOLDER, TABLE = "qualities", "quality"
Level = Literal["lossless", "near", "good", "degraded"]
LEVELS: tuple[Level, ...] = ("lossless", "near", "good", "degraded")
NEAR = LEVELS.index("near")
# The most that a level may lose: mean KL divergence in nats, and percent of a benchmark's points.
KLD_LIMITS = {"lossless": 0.002, "near": 0.05, "good": 0.15}
LOSS_LIMITS = {"lossless": 0.1, "near": 2.0, "good": 5.0}
# The bits by which a format may fall short of the maker's own and still be it: scales and excluded tensors differ.
_SAME_BITS = 0.5
_SCHEME_BITS = {"bf16": 16.0, "fp8": 8.0, "mxfp8": 8.25, "nvfp4": 4.5, "int4": 4.25, "mxfp4": 4.25}


class Quality(Frozen):
    """A published figure about one quantisation: a GGUF mix ("Q4_K_M") or a weight format ("nvfp4").

    architecture: the class of models that the figure applies to, None for all. level: only if the source gives it in
    words; otherwise it follows from kld or loss_percent.
    """

    name: str
    architecture: str | None = None
    kld: Annotated[float, Field(ge=0)] | None = None
    loss_percent: Annotated[float, Field(ge=0, le=100)] | None = None
    level: Level | None = None
    source: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _has_one_figure(self) -> Self:
        if sum(figure is not None for figure in (self.kld, self.loss_percent, self.level)) != 1:
            raise ValueError("give one of kld, loss_percent and level")
        return self

    @property
    def reached(self) -> Level:
        """The best level whose limit the figure keeps."""
        if self.level is not None:
            return self.level
        figure, limits = (self.kld, KLD_LIMITS) if self.kld is not None else (self.loss_percent, LOSS_LIMITS)
        return next((level for level in LEVELS[:-1] if (figure or 0.0) <= limits[level]), "degraded")

    @property
    def text(self) -> str:
        """The figure in a few words, "" if the source has words only."""
        if self.kld is not None:
            return f"mean KL divergence {self.kld:.2g}"
        return f"{self.loss_percent:g} % of benchmark points lost" if self.loss_percent is not None else ""


class JudgedQuality(Frozen):
    """The level of one checkpoint. figure: the figure behind it, "" for words. pruned: experts were removed."""

    level: Level
    figure: str
    source: str
    pruned: bool = False

    @property
    def degraded(self) -> bool:
        """Whether it is of the last level, which has no floor."""
        return self.level == LEVELS[-1]

    @property
    def rank(self) -> int:
        """0 for the best."""
        return LEVELS.index(self.level)

    @property
    def text(self) -> str:
        """The level in words. No source says how much a checkpoint loses by pruning."""
        return f"{self.level}, not counting the experts that were pruned" if self.pruned else self.level


@cache
def published() -> tuple[Quality, ...]:
    """All figures in the catalogue."""
    return read_entries(DATA / FOLDER, TABLE, Quality)


def quality_of(checkpoint: CheckpointEntry, model: Model, own: tuple[Quality, ...] = ()) -> JudgedQuality:
    """The level of a checkpoint, from its format and the published figures. own: a fleet's figures, which go before."""
    found = _quality_of(checkpoint, model, own)
    return found.model_copy(update={"pruned": True}) if checkpoint.pruned else found


@lru_cache(maxsize=4096)
def _quality_of(checkpoint: CheckpointEntry, model: Model, own: tuple[Quality, ...]) -> JudgedQuality:
    """The maker's own format loses nothing; other formats have the level of their figure.

    A mix without a figure counts as the nearest published one with no more bits per weight.
    """
    kept = "mxfp4" if checkpoint.quant.upper().startswith("MXFP4") else checkpoint.weight_format
    native = _SCHEME_BITS.get(kept, 0.0)
    if native and native >= model.reference_bits - _SAME_BITS:
        return JudgedQuality(level="lossless", figure="", source="the maker publishes the model in such a format")
    for figures in (own, published()):
        for name in _names(checkpoint):
            if (found := _figure(figures, name, model.architectures)) is not None:
                return JudgedQuality(level=found.reached, figure=found.text, source=found.source)
    return _by_bits(checkpoint, model)


def _names(checkpoint: CheckpointEntry) -> tuple[str, ...]:
    """The names to look up, the most exact first. An "XL" mix has at least the bits of an "M" mix."""
    if checkpoint.scheme != "gguf":
        return (checkpoint.weight_format,)
    plain = checkpoint.quant.removeprefix("UD-")
    smaller = re.sub(r"_XL$", "_M", plain)
    mixes = (checkpoint.quant, plain, f"UD-{smaller}" if checkpoint.quant != plain else smaller, smaller)
    if plain.startswith("MXFP4"):
        return ("mxfp4",)
    names = (*mixes, smaller.removesuffix("_M"), {"BF16": "F16", "F32": "F16"}.get(plain, plain))
    return tuple(dict.fromkeys(names))


def _figure(figures: tuple[Quality, ...], name: str, architectures: tuple[str, ...]) -> Quality | None:
    found = [entry for entry in figures if entry.name == name and entry.architecture in (*architectures, None)]
    return max(found, key=lambda entry: entry.architecture is not None) if found else None


def _by_bits(checkpoint: CheckpointEntry, model: Model) -> JudgedQuality:
    """The level without a figure: that of a measured GGUF with no more bits per weight."""
    bits = checkpoint.bytes * 8 / (checkpoint.parameters or model.parameters)
    known = [(limit, name) for limit, name in _GGUF_BITS if limit <= bits]
    name = max(known)[1] if known else "IQ1_S"
    found = _figure(published(), name, model.architectures)
    assert found is not None
    source = f"no figure published: counted as {name}, which has no more bits a weight ({found.source})"
    return JudgedQuality(level=found.reached, figure=found.text, source=source)


# Bits a weight of a GGUF: llama.cpp tools/quantize/README.md.
_GGUF_BITS = (
    (2.0, "IQ1_S"),
    (2.15, "IQ1_M"),
    (2.38, "IQ2_XXS"),
    (2.93, "IQ2_M"),
    (3.16, "Q2_K"),
    (3.25, "IQ3_XXS"),
    (3.64, "Q3_K_S"),
    (4.0, "Q3_K_M"),
    (4.3, "Q3_K_L"),
    (4.46, "IQ4_XS"),
    (4.67, "Q4_K_S"),
    (4.89, "Q4_K_M"),
    (5.57, "Q5_K_S"),
    (5.7, "Q5_K_M"),
    (6.56, "Q6_K"),
    (8.5, "Q8_0"),
)
