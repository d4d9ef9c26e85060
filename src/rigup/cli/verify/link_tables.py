"""The links of a host's GPUs as tables, and what is to be said of them."""

from __future__ import annotations

from collections.abc import Iterable

from rigup.catalogue.gpu_names import short_name
from rigup.cli.output.console import Console
from rigup.cli.output.table import Column, Table
from rigup.facts.gpu_load import GpuLoad, HostLoad
from rigup.facts.links import GpuLink, Links, PairLink
from rigup.facts.probe import Probe
from rigup.preflight.links import LinkFinding, unmeasured

_GPUS = ("GPU", "card", "link now", "card and slot can", "from host", "NVLink")
_PAIRS = ("from", "to", "P2P", "speed", "data")
_LOADS = ("GPU", "clock under load", "card can", "power", "at most", "held back by")


def show(
    host: str,
    links: Links,
    found: Iterable[LinkFinding],
    probe: Probe | None,
    console: Console,
    load: HostLoad | None = None,
) -> None:
    """Prints the links of one host, what was seen of its cards under load, then its problems and notes."""
    cards = {gpu.index: short_name(gpu.name) for gpu in probe.gpus} if probe else {}
    paths = {(pair.first, pair.second): pair.path for pair in probe.gpu_pairs} if probe else {}
    console.say((host, "bold"))
    _table(_GPUS, [_gpu(link, cards.get(link.gpu, "")) for link in links.gpus], console)
    if links.pairs:
        _table(_PAIRS, [_pair(link, paths) for link in links.pairs], console)
    if why := unmeasured((*links.gpus, *links.pairs)):
        console.say(f"  not measured: {why}")
    if load:
        _table(_LOADS, [_loaded(gpu) for gpu in load.gpus], console)
        console.say(f"  loaded for {load.seconds:.0f} s by {load.by}")
    said = list(found)
    for one in said:
        console.say("  ", ("problem", "red") if one.problem else ("note", "yellow"), f" {one.message}")
        if one.hint:
            console.say(f"          hint: {one.hint}")
    if not any(one.problem for one in said):
        console.say("  ", ("no problem found", "green"))


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]], console: Console) -> None:
    table = Table(Column(head) for head in heads)
    for row in rows:
        table.add(*row)
    console.print(table, soft_wrap=True)


def _gpu(link: GpuLink, name: str) -> tuple[str, ...]:
    generation, width = link.loaded_generation or link.generation, link.loaded_width or link.width
    now = _link(generation, width) + ("" if link.loaded_generation or generation is None else ", idle")
    nvlink = f"{link.nvlinks_active} of {link.nvlinks} up" if link.nvlinks else "none"
    speed = "not measured" if link.host_gbs is None else f"{link.host_gbs:.1f} GB/s"
    return str(link.gpu), name, now, _link(link.most_generation, link.most_width), speed, nvlink


def _pair(link: PairLink, paths: dict[tuple[int, int], str]) -> tuple[str, ...]:
    first, second = link.pair
    path = paths.get((min(link.pair), max(link.pair)), "")
    way = "NVLink" if link.nvlink else f"PCIe ({path})" if path else "PCIe"
    direct = link.read if link.direct is None else link.direct
    peer = "unknown" if direct is None else f"by {way}" if direct else "no, through the host"
    speed = "not measured" if link.gbs is None else f"{link.gbs:.1f} GB/s"
    data = {None: "not measured", True: "unchanged", False: "CHANGED"}[link.correct]
    return str(first), str(second), peer, speed, data


def _loaded(gpu: GpuLoad) -> tuple[str, ...]:
    reasons = gpu.held_back or {}
    held = ", ".join(f"{reason} {share:.0%}" for reason, share in reasons.items() if share)
    return (
        str(gpu.gpu),
        _figure(gpu.clock_mhz, "MHz"),
        _figure(gpu.highest_clock_mhz, "MHz"),
        _figure(gpu.power_w, "W"),
        _figure(gpu.temperature_most_c, "°C"),
        held or ("unknown" if gpu.held_back is None else "nothing"),
    )


def _figure(value: float | None, unit: str) -> str:
    return "unknown" if value is None else f"{value:.0f} {unit}"


def _link(generation: int | None, width: int | None) -> str:
    return "unknown" if generation is None or width is None else f"gen {generation} x{width}"
