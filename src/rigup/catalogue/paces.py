"""How fast engines decode on GPUs: parts of the hardware's figures, fitted to published runs, and their spread.

`python -m tests.measured.paces` writes data/paces/; docs/speed.md shows how far each run is off.
"""

from functools import cache
from typing import Annotated

from pydantic import Field

from rigup.catalogue.data_files import DATA, toolkit_facts
from rigup.regular_files import files_in
from rigup.service import EngineName
from rigup.units import Frozen

Part = Annotated[float, Field(gt=0, le=1)]
Microseconds = Annotated[float, Field(ge=0)]


class CardPace(Frozen):
    """What goes at the pace of the cards.

    weights, experts, cache: parts of the memory's bandwidth at which each is read. older_experts: that of experts by
    cards before Ada, of compute capability below 8.9.
    layer: microseconds that a layer takes however little it reads, for launching its kernels. expert_layer,
    latent_layer, linear_layer: beyond that, of one with experts, with latent attention, with a state.
    reduce: of adding up over ranks, for each doubling of them. link_gbs: 10**9 bytes a second of that, 0 for no limit.
    """

    weights: Part
    experts: Part
    older_experts: Part
    cache: Part
    layer: Microseconds
    expert_layer: Microseconds
    latent_layer: Microseconds
    linear_layer: Microseconds
    reduce: Microseconds
    link_gbs: Annotated[float, Field(ge=0)]


class Pace(Frozen):
    """The figures of some engines. hbm, gddr: by the memory of the cards, which tells large processors from others.

    compute: part of the card's rate. alike: so many requests count as their number to this power for the experts that
    they take, of which many are the same. sequence: microseconds of each request in a step. boundary: microseconds
    from one card to the next where they have layers of their own. spread: factor to either side of the estimate for
    one request; together: for several at once. runs: how many it was fitted to.
    """

    engines: tuple[EngineName, ...]
    compute: Part
    alike: Part
    sequence: Microseconds
    boundary: Microseconds
    hbm: CardPace
    gddr: CardPace
    spread: Annotated[float, Field(ge=1)]
    together: Annotated[float, Field(ge=1)]
    runs: Annotated[int, Field(ge=1)]
    source: str

    def spread_of(self, sequences: int) -> float:
        """The factor for a step of so many requests."""
        return self.spread if sequences == 1 else self.together


@cache
def paces() -> dict[EngineName, Pace]:
    """By engine."""
    found = [toolkit_facts(f"paces/{path.name}", Pace) for path in files_in(DATA / "paces", ".toml")]
    return {engine: pace for pace in found for engine in pace.engines}
