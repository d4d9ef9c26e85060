"""One GPU's memory as two bars: planned, in its parts, above measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rigup.cli.page.markup import Markup, drawing, element

Row = dict[str, Any]
PARTS = (("weights", "weights"), ("kv_cache", "KV cache"), ("overhead", "overhead"))
WIDTH = 1000.0
PLANNED_HEIGHT, MEASURED_HEIGHT, GAP = 14.0, 7.0, 2.0
HEIGHT = PLANNED_HEIGHT + GAP + MEASURED_HEIGHT
SEAM = 2.0


@dataclass(frozen=True)
class GpuUse:
    """One GPU of a service, in MiB. weights, kv_cache, overhead: None if no plan has these parts.

    planned: the service's total. measured: None if the card does not report it.
    """

    gpu: int
    name: str
    capacity: int
    planned: int
    measured: int | None
    weights: int | None = None
    kv_cache: int | None = None
    overhead: int | None = None

    @property
    def parts(self) -> tuple[tuple[str, str, int], ...]:
        """(class, label, MiB) of each part of the planned memory."""
        known = [(key, words, getattr(self, key)) for key, words in PARTS]
        if any(mib is None for _, _, mib in known):
            return (("weights", "planned", self.planned),)
        return tuple(known)

    @property
    def off_by(self) -> float | None:
        """The relative difference of measured from planned use; None if unknown."""
        return None if self.measured is None or not self.planned else (self.measured - self.planned) / self.planned


def uses_of(
    planned: Iterable[Row], names: dict[int, str], probed: Iterable[Row], measured: Iterable[Row] = ()
) -> tuple[GpuUse, ...]:
    """The planned and the measured memory of each GPU.

    planned: of a plan. probed: cards as the probe found them. measured: what a start of the service took of a GPU; it
    counts before what is in use on the card.
    """
    on_card, starts = {gpu["index"]: _in_use(gpu) for gpu in probed}, {one["gpu"]: one for one in measured}
    found = []
    for gpu in planned:
        index, own = gpu["gpu"], starts.get(gpu["gpu"], {})
        parts = gpu["weights_mib"], gpu["kv_cache_mib"], gpu["overhead_mib"]
        total = own.get("planned_mib", sum(parts))
        known = parts if total == sum(parts) else (None, None, None)
        capacity, name = own.get("capacity_mib") or gpu["capacity_mib"], names.get(index, "").removeprefix("NVIDIA ")
        use = own["measured_mib"] if own else on_card.get(index)
        found.append(GpuUse(index, name, capacity, total, use, *known))
    return tuple(found)


def _in_use(gpu: Row) -> int | None:
    """The memory in use on a probed card, with the driver's reserve, like the plan's overhead; None if not reported."""
    used = gpu.get("memory_used_mib")
    return None if used is None else int(used) + int(gpu.get("memory_reserved_mib") or 0)


def memory_bar(use: GpuUse, id_: str) -> Markup:
    """The drawing, as wide as its container, without text. id_: unique in the page."""
    capacity = max(use.capacity, use.planned, use.measured or 0, 1)
    drawn = [element("rect", class_="free", width=WIDTH, height=PLANNED_HEIGHT)]
    at = 0.0
    for key, _, mib in use.parts:
        width = WIDTH * mib / capacity
        drawn.append(element("rect", class_=key, x=at, width=max(width - SEAM, 0.0), height=PLANNED_HEIGHT))
        at += width
    if use.measured is not None:
        width, below = WIDTH * use.measured / capacity, PLANNED_HEIGHT + GAP
        drawn.append(element("rect", class_="measured", y=below, width=width, height=MEASURED_HEIGHT))
    drawn.append(element("rect", class_="planned-end", x=max(at - SEAM, 0.0), width=SEAM, height=HEIGHT))
    return drawing(
        f"Memory of GPU {use.gpu}",
        described(use),
        id_,
        drawn,
        class_="memory",
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        preserveAspectRatio="none",
    )


def described(use: GpuUse) -> str:
    """The bar as a text."""
    parts = ", ".join(f"{words} {gib(mib)}" for _, words, mib in use.parts)
    measured = "measured: unknown" if use.measured is None else f"measured: {gib(use.measured)}"
    return f"Planned: {parts}; {measured}; capacity {gib(use.capacity)}."


def gib(mib: float) -> str:
    """MiB as GiB, with the unit."""
    return f"{mib / 1024:.1f} GiB"
