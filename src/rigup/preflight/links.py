"""Judges whether the GPUs' links do what they can, and whether the cards are well, also under load. Pure.

Sources: the NCCL user guide, troubleshooting (ACS, IOMMU); NVIDIA's Xid catalogue; PCI Express specification (rates);
nvml.h, clocks event reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rigup.facts.gpu_load import GpuLoad, HostLoad
from rigup.facts.gpus import ProbedGpu
from rigup.facts.links import GpuLink, Links, PairLink
from rigup.facts.probe import Probe
from rigup.preflight.rig import LOST, described
from rigup.units import list_text

# 10**9 bytes per second for each lane, after encoding
_LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# A copy reaches about four fifths of its link's rate; below this share something else is in the way.
LEAST_SHARE = 0.5
# What a program can cause on a healthy card: NVIDIA's catalogue answers each with restarting the program.
_XIDS_OF_PROGRAMS = {13, 31, 43, 45}
_BIOS = "in the BIOS, or reseat the card and its riser"
SLOWED = {"hardware slowdown", "software thermal", "hardware thermal", "power brake"}
_POWER_CAP = "power cap"
COOLING = "check fans, airflow and power cables; lower its limit"


@dataclass(frozen=True)
class LinkFinding:
    """One thing to know. problem: it costs speed or correctness now, rather than being a property of the machine."""

    problem: bool
    message: str
    hint: str = ""


def link_findings(links: Links, probe: Probe) -> tuple[LinkFinding, ...]:
    """Everything to be said of a host's links, problems first."""
    cards = {gpu.index: gpu for gpu in probe.gpus}
    found = [
        *_unread(links),
        *_lost(links, probe),
        *(one for link in links.gpus for one in _gpu(link, cards.get(link.gpu))),
        *_pairs(links, cards),
        *_on_the_way(links),
        *_xids(links),
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda one: not one.problem))


def capacity_gbs(generation: int | None, width: int | None) -> float | None:
    """10**9 bytes per second that a PCIe link carries in one direction; None for an unknown one."""
    lane = _LANE_GBS.get(generation or 0)
    return lane * width if lane and width else None


def _unread(links: Links) -> Iterator[LinkFinding]:
    if links.error:
        yield LinkFinding(True, f"NVML does not answer: {links.error}", "on the host: nvidia-smi")
    elif not links.done:
        yield LinkFinding(True, "the check did not finish", "a call into the driver hangs: journalctl -k -b")


def _lost(links: Links, probe: Probe) -> Iterator[LinkFinding]:
    """The GPUs that do not respond, each with the driver's last error about it."""
    known = {gpu.index: gpu for gpu in probe.gpus}
    unclaimed = [xid for xid in links.xids if not any(_same_bus(xid.bus, gpu.bus) for gpu in links.gpus)]
    for gpu in links.lost:
        card = known.get(gpu.lost)
        bus = gpu.bus or (card.bus if card else "")
        if bus:
            xids = [xid for xid in links.xids if _same_bus(xid.bus, bus)]
        else:  # NVML says nothing of a lost card, not even where it is
            xids = unclaimed if len(links.lost) == 1 else []
            bus = xids[-1].bus if xids else ""
        last = f"; Xid {xids[-1].xid}" + (f": {xids[-1].text}" if xids[-1].text else "") if xids else ""
        name = described(card) if card else f"GPU {gpu.lost}"
        at = f" at {bus}" if bus else ""
        yield LinkFinding(
            True,
            f"{name}{at} does not respond: {gpu.error}{last}",
            f"{LOST}; rigup apply says how to serve on the rest",
        )


def _same_bus(first: str, second: str) -> bool:
    """Whether two addresses are one: the driver's log writes them without the function, NVML with more zeros."""
    words = [re.findall(r"[0-9a-f]+", address.lower())[:3] for address in (first, second)]
    return [int(word, 16) for word in words[0]] == [int(word, 16) for word in words[1]]


def _gpu(link: GpuLink, card: ProbedGpu | None) -> Iterator[LinkFinding]:
    name = f"GPU {link.gpu}"
    width, most = link.loaded_width or link.width, link.most_width
    if width and most and width < most:
        yield LinkFinding(True, f"{name}: its link has {width} lanes of {most}", f"set the slot's lanes {_BIOS}")
    elif most and link.card_width and most < link.card_width:
        yield LinkFinding(False, f"{name}: its slot has {most} lanes, the card {link.card_width}")
    loaded, best = link.loaded_generation, link.most_generation
    if loaded and best and loaded < best:
        yield LinkFinding(
            True,
            f"{name}: its link runs at PCIe generation {loaded} under load, but card and slot support {best}",
            f"set the slot's generation {_BIOS}; look for AER errors: journalctl -k -b | grep AER",
        )
    elif best and link.card_generation and best < link.card_generation:
        yield LinkFinding(False, f"{name}: its slot runs PCIe generation {best}, the card {link.card_generation}")
    carries = capacity_gbs(loaded, link.loaded_width)
    if link.host_gbs is not None and carries and link.host_gbs < LEAST_SHARE * carries:
        yield LinkFinding(
            True,
            f"{name}: copies from the host reach {link.host_gbs:g} GB/s of {carries:.1f}",
            "stop what else uses the link and check again; then look at the slot's NUMA node and riser",
        )
    if link.nvlinks and link.nvlinks_active and link.nvlinks_active < link.nvlinks:
        yield LinkFinding(
            True, f"{name}: {link.nvlinks_active} of {link.nvlinks} NVLinks are up", "reseat the bridge or the board"
        )
    if link.ecc_uncorrected:
        yield LinkFinding(
            True, f"{name}: {link.ecc_uncorrected} uncorrected ECC errors since boot", "reset the card or reboot"
        )
    if link.remap_failed:
        yield LinkFinding(True, f"{name}: a faulty row of its memory could not be replaced", "return the card")
    elif link.remap_pending:
        yield LinkFinding(
            True, f"{name}: a faulty row of its memory will be replaced at the next reset", "reset the card or reboot"
        )
    yield from _held_back(name, card)


def _held_back(name: str, card: ProbedGpu | None) -> Iterator[LinkFinding]:
    if card is None:
        return
    if slowed := [reason for reason in card.throttled if reason in SLOWED]:
        at = f" at {card.temperature_c} °C" if card.temperature_c is not None else ""
        yield LinkFinding(
            True,
            f"{name}: slowed down{at}: {', '.join(slowed)}",
            COOLING,
        )
    limit, default = card.power.limit_w, card.power.default_w
    if limit is not None and default is not None and limit < default:
        yield LinkFinding(False, f"{name}: limited to {limit:g} W of {default:g} W")


def _pairs(links: Links, cards: dict[int, ProbedGpu]) -> Iterator[LinkFinding]:
    speeds = {link.gpu: link.host_gbs for link in links.gpus}
    for pair in links.pairs:
        first, second = pair.pair
        name = f"GPU {first} to GPU {second}"
        if pair.correct is False:
            yield LinkFinding(
                True,
                f"{name}: data arrive changed",
                "serve nothing across these cards: switch off ACS and the IOMMU, or P2P (NCCL_P2P_DISABLE=1)",
            )
        if pair.read and pair.direct is False:
            yield LinkFinding(True, f"{name}: NVML reports P2P, but CUDA refuses it", "reboot, then check again")
        slowest = min((speed for index in pair.pair if (speed := speeds.get(index)) is not None), default=None)
        if pair.direct and pair.gbs is not None and slowest is not None and pair.gbs < LEAST_SHARE * slowest:
            yield LinkFinding(
                True,
                f"{name}: P2P reaches {pair.gbs:g} GB/s, copies from the host {slowest:g}",
                "switch off ACS on the bridges between them and the IOMMU, as the NCCL guide says",
            )
    yield from patched(links, cards)


def patched(links: Links, cards: dict[int, ProbedGpu]) -> Iterator[LinkFinding]:
    """That kernel modules are patched, a problem unless data arrived unchanged; nothing if they are NVIDIA's."""
    over_pcie = [
        pair
        for pair in links.pairs
        if pair.read and not pair.nvlink and all(i in cards and cards[i].peers_are_patched for i in pair.pair)
    ]
    if not over_pcie:
        return
    said = "the driver is patched: it gives GeForce cards P2P over PCIe, which NVIDIA's does not"
    if all(pair.correct for pair in over_pcie):
        yield LinkFinding(False, f"{said}; data between all of them arrived unchanged")
        return
    why = next((pair.unmeasured for pair in over_pcie if pair.unmeasured), "")
    yield LinkFinding(
        True,
        said + (f", and it is not verified: {why}" if why else ", and data do not arrive unchanged"),
        "stop the services and check again; or put NVIDIA's own back: apt-get install --reinstall the kernel modules",
    )


def _on_the_way(links: Links) -> Iterator[LinkFinding]:
    """ACS and IOMMU, which turn P2P into a way through the host, or break it."""
    wants = any(pair.read and not pair.nvlink for pair in links.pairs)
    bridges = sorted({bridge for link in links.gpus for bridge in link.acs or ()})
    if bridges and len(links.gpus) > 1:
        yield LinkFinding(
            wants,
            f"ACS sends P2P through the host on {list_text(bridges, 4)}",
            "switch ACS off in the BIOS; or at boot: setpci -s BRIDGE ECAP_ACS+6.w=0" if wants else "",
        )
    if len(links.gpus) > 1 and any((link.iommu or "").startswith("DMA") for link in links.gpus):
        yield LinkFinding(
            wants,
            "the IOMMU translates what the GPUs read and write",
            "on bare metal: iommu=pt on the kernel's command line, or switch it off in the BIOS" if wants else "",
        )


def can_hang(links: Links) -> str:
    """Why a transfer between GPUs may never end, in words that follow a service's failure; "" for no known reason.

    Sources: the NCCL user guide, troubleshooting; NVIDIA/nccl#199 (so slow that it seemed to hang; ended by switching
    ACS off), #1999 and local-inference-lab/rtx6kpro#15 (the first all-reduce hangs), a report each.
    """
    found = [one.message for one in _on_the_way(links) if one.problem]
    return f"{'; '.join(found)}: transfers between GPUs (NCCL) can hang there" if found else ""


def _xids(links: Links) -> Iterator[LinkFinding]:
    by_code: dict[int, list[str]] = {}
    for xid in links.xids:
        by_code.setdefault(xid.xid, []).append(f"{xid.bus}: {xid.text}" if xid.text else xid.bus)
    for code, texts in by_code.items():
        times = f"{len(texts)} times, most recently " if len(texts) > 1 else ""
        hint = "" if code in _XIDS_OF_PROGRAMS else f"look up Xid {code}: docs.nvidia.com/deploy/xid-errors"
        yield LinkFinding(code not in _XIDS_OF_PROGRAMS, f"Xid {code} since boot: {times}{texts[-1]}", hint)


def unmeasured(links: Iterable[GpuLink | PairLink]) -> str:
    """Why something was not measured, each reason once; "" if everything was."""
    return "; ".join(dict.fromkeys(link.unmeasured for link in links if link.unmeasured))


def load_findings(load: HostLoad, probe: Probe) -> Iterator[LinkFinding]:
    """Everything to be said of a host's GPUs under load."""
    limits = {gpu.index: gpu.power.limit_w for gpu in probe.gpus}
    if not load.gpus:
        yield LinkFinding(False, "NVML reported nothing about the GPUs during the load")
    for gpu in load.gpus:
        yield from _loaded_gpu(gpu, limits.get(gpu.gpu))


def _loaded_gpu(gpu: GpuLoad, limit_w: float | None) -> Iterator[LinkFinding]:
    held = gpu.held_back or {}
    if slowed := {reason: share for reason, share in held.items() if reason in SLOWED and share}:
        at = f" at up to {gpu.temperature_most_c:g} °C" if gpu.temperature_most_c is not None else ""
        most = max(slowed.values())
        yield LinkFinding(
            True,
            f"GPU {gpu.gpu}: slowed down in {most:.0%} of the load{at}: {', '.join(slowed)}{_clocks(gpu)}",
            COOLING,
        )
    if share := held.get(_POWER_CAP):
        limit = f" of {limit_w:g} W" if limit_w is not None else ""
        yield LinkFinding(False, f"GPU {gpu.gpu}: at its power limit{limit} in {share:.0%} of the load{_clocks(gpu)}")
    if gpu.held_back is None:
        yield LinkFinding(False, f"GPU {gpu.gpu}: NVML does not report what limits its clock")


def _clocks(gpu: GpuLoad) -> str:
    if gpu.clock_mhz is None:
        return ""
    return f"; {gpu.clock_mhz:.0f} MHz" + (f" of {gpu.highest_clock_mhz:.0f}" if gpu.highest_clock_mhz else "")
