"""What an engine's process takes of its GPU beside weights, caches and one step, by release, ranks and model.

Derived from published logs; each figure says which. A fleet's own figures (rigup.catalogue.overheads) take its place.
"""

from functools import cache
from typing import Annotated

from pydantic import Field

from rigup.catalogue.data_files import DATA, toolkit_facts
from rigup.catalogue.versions import Ranged
from rigup.regular_files import files_in
from rigup.service import EngineName
from rigup.units import GIB, MIB, Frozen

# Sequences of the largest batch that vLLM captures a graph for by default: rows of graphs are of at least as many.
_GRAPH_SEQUENCES = 512


class HiddenMemory(Frozen):
    """What the driver keeps of a GPU, so that CUDA does not see it: mib, and mib_per_gib of its memory."""

    mib: float
    mib_per_gib: float
    source: str


class SamplerProfile(Ranged):
    """Bytes that the start profile of the sampler takes, a sequence and entry of the vocabulary."""

    bytes: Annotated[float, Field(gt=0)]


class ProcessShare(Ranged):
    """MiB of each of so many ranks of tensor parallelism.

    attention: kinds of rigup.attention that it is for; () for the others. experts: whether it is for models with some.
    sequences: of graphs, how many at once the figure is of; fewer take their part of it.
    """

    ranks: Annotated[int, Field(ge=1)]
    mib: Annotated[float, Field(ge=0)]
    attention: tuple[str, ...] = ()
    experts: bool = False
    sequences: Annotated[int, Field(ge=1)] = _GRAPH_SEQUENCES

    def fits(self, version: str, kinds: frozenset[str], experts: bool) -> bool:
        """Whether it is about this release and such a model."""
        named = not self.attention or bool(kinds & set(self.attention))
        return self.holds(version) and named and (experts or not self.experts)

    @property
    def order(self) -> tuple[int, bool, bool]:
        """The more ranks and the more it says of the model, the better it fits."""
        return self.ranks, bool(self.attention), self.experts


class Runtimes(Frozen):
    """The figures of one engine."""

    engine: EngineName
    reserve: HiddenMemory
    process: tuple[ProcessShare, ...]
    sampler: tuple[SamplerProfile, ...] = ()
    graphs: tuple[ProcessShare, ...] = ()

    def reserve_bytes(self, memory: float) -> float:
        """What CUDA does not see of a GPU with so many bytes by NVML."""
        return (self.reserve.mib + self.reserve.mib_per_gib * memory / GIB) * MIB

    def sampler_bytes(self, version: str) -> float:
        """Bytes a sequence and entry of the vocabulary."""
        return next(entry.bytes for entry in self.sampler if entry.holds(version))

    def process_bytes(self, version: str, kinds: frozenset[str], experts: bool, ranks: int) -> float:
        """What the process takes on each of so many ranks."""
        found = _best(self.process, version, kinds, experts, ranks)
        return found.mib * MIB if found else 0.0

    def graph_bytes(self, version: str, kinds: frozenset[str], experts: bool, ranks: int, sequences: int) -> float:
        """What CUDA graphs are counted for batches of up to so many sequences."""
        found = _best(self.graphs, version, kinds, experts, ranks)
        return found.mib * MIB * min(1.0, sequences / found.sequences) if found else 0.0


def _best(
    entries: tuple[ProcessShare, ...], version: str, kinds: frozenset[str], experts: bool, ranks: int
) -> ProcessShare | None:
    """The entry of most ranks up to these that says most of the model."""
    fitting = [entry for entry in entries if entry.ranks <= ranks and entry.fits(version, kinds, experts)]
    return max(fitting, key=lambda entry: entry.order, default=None)


@cache
def runtimes() -> dict[str, Runtimes]:
    """The toolkit's figures by engine."""
    found = [toolkit_facts(f"runtimes/{path.name}", Runtimes) for path in files_in(DATA / "runtimes", ".toml")]
    return {entry.engine: entry for entry in found}
