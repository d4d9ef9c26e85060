"""What is said of links and cards that do less than they can; and nothing of those that do all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.links import GpuLink, Links, LostGpu, PairLink, Xid
from rigup.facts.probe import PowerLimits, Probe, ProbedGpu
from rigup.preflight.links import can_hang, link_findings, unmeasured

GOOD: dict[str, Any] = {
    "bus": "0000:01:00.0",
    "generation": 1,
    "width": 16,
    "most_generation": 4,
    "most_width": 16,
    "card_generation": 4,
    "card_width": 16,
    "loaded_generation": 4,
    "loaded_width": 16,
    "host_gbs": 24.0,
}
CARD = ProbedGpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", power=PowerLimits(600, 600, 150, 600))
GEFORCE = replace(CARD, name="NVIDIA GeForce RTX 4090")
PEERS: dict[str, Any] = {"read": True, "write": True, "nvlink": False, "direct": True, "gbs": 20.0, "correct": True}


def links(gpu: dict[str, Any] | None = None, pair: dict[str, Any] | None = None, **rest: Any) -> Links:
    gpus = tuple(GpuLink(gpu=index, **{**GOOD, **(gpu or {})}) for index in (0, 1))
    pairs = tuple(PairLink(pair=order, **{**PEERS, **(pair or {})}) for order in ([0, 1], [1, 0]))
    return Links(gpus=gpus, pairs=pairs, done=True, **rest)


def said(found: Links, card: ProbedGpu = CARD) -> list[tuple[bool, str]]:
    cards = (card, replace(card, index=1))
    return [(one.problem, one.message) for one in link_findings(found, Probe(gpus=cards))]


@pytest.mark.parametrize(("bus", "probed"), [("", "00000000:02:00.0"), ("0000:02:00.0", ""), ("", "")])
def test_a_card_that_does_not_respond_is_named_with_its_xid(bus: str, probed: str) -> None:
    lost = ProbedGpu(CARD.name, index=2, uuid="GPU-2", bus=probed, error="GPU is lost")
    xids = (
        Xid(xid=31, bus="0000:01:00", text="of another card"),
        Xid(xid=79, bus="0000:02:00", text="GPU has fallen off the bus."),
    )
    found = links(lost=(LostGpu(lost=2, bus=bus, error="GPU is lost"),), xids=xids)
    (one, *_) = link_findings(found, Probe(gpus=(CARD, replace(CARD, index=1), lost)))
    assert one.problem
    assert one.message.startswith(f"GPU 2 ({CARD.name}, GPU-2) at ")
    assert one.message.endswith(": GPU is lost; Xid 79: GPU has fallen off the bus.")
    assert "rigup apply" in one.hint


def test_nothing_is_said_of_links_that_do_what_they_can() -> None:
    assert said(links()) == []
    assert unmeasured(links().gpus) == ""


@pytest.mark.parametrize(
    ("gpu", "problem", "message"),
    [
        ({"loaded_width": 8}, True, "GPU 0: its link has 8 lanes of 16"),
        (
            {"most_width": 8, "width": 8, "loaded_width": 8, "host_gbs": 12},
            False,
            "GPU 0: its slot has 8 lanes, the card 16",
        ),
        (
            {"loaded_generation": 3, "host_gbs": 12},
            True,
            "GPU 0: its link runs at PCIe generation 3 under load, but card and slot support 4",
        ),
        (
            {"most_generation": 3, "loaded_generation": 3, "host_gbs": 12},
            False,
            "GPU 0: its slot runs PCIe generation 3, the card 4",
        ),
        ({"host_gbs": 3.0}, True, "GPU 0: copies from the host reach 3 GB/s of 31.5"),
        ({"nvlinks": 4, "nvlinks_active": 3}, True, "GPU 0: 3 of 4 NVLinks are up"),
        ({"ecc_uncorrected": 2}, True, "GPU 0: 2 uncorrected ECC errors since boot"),
        ({"remap_failed": True}, True, "GPU 0: a faulty row of its memory could not be replaced"),
        ({"remap_pending": True}, True, "GPU 0: a faulty row of its memory will be replaced at the next reset"),
    ],
)
def test_a_card_or_its_link(gpu: dict[str, Any], problem: bool, message: str) -> None:
    assert (problem, message) in said(links(gpu))


@pytest.mark.parametrize(
    "gpu",
    [
        {"loaded_generation": None, "loaded_width": None, "host_gbs": None},  # idle cards run at generation 1
        {"nvlinks": 4, "nvlinks_active": 0},  # no bridge
    ],
)
def test_what_is_not_a_fault(gpu: dict[str, Any]) -> None:
    assert said(links(gpu)) == []


def test_cards_that_are_held_back() -> None:
    hot = replace(CARD, throttled=("hardware thermal", "power cap"), temperature_c=92)
    assert (True, "GPU 0: slowed down at 92 °C: hardware thermal") in said(links(), hot)
    capped = replace(CARD, power=PowerLimits(400, 600, 150, 600))
    assert (False, "GPU 1: limited to 400 W of 600 W") in said(links(), capped)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"correct": False}, "GPU 0 to GPU 1: data arrive changed"),
        ({"direct": False, "gbs": 6}, "GPU 0 to GPU 1: NVML reports P2P, but CUDA refuses it"),
        ({"gbs": 2.5}, "GPU 1 to GPU 0: P2P reaches 2.5 GB/s, copies from the host 24"),
    ],
)
def test_pairs_that_do_not_reach_each_other_as_they_should(pair: dict[str, Any], message: str) -> None:
    assert (True, message) in said(links(pair=pair))


PATCHED = "the driver is patched: it gives GeForce cards P2P over PCIe, which NVIDIA's does not"


def test_a_patched_driver_is_named_and_verified_or_a_problem() -> None:
    assert said(links(), GEFORCE) == [(False, f"{PATCHED}; data between all of them arrived unchanged")]
    wrong = said(links(pair={"correct": False}), GEFORCE)
    assert (True, f"{PATCHED}, and data do not arrive unchanged") in wrong
    unknown = {"gbs": None, "correct": None, "direct": None, "unmeasured": "only 300 MiB are free"}
    assert said(links(pair=unknown), GEFORCE) == [(True, f"{PATCHED}, and it is not verified: only 300 MiB are free")]
    assert said(links(pair={"nvlink": True}), GEFORCE) == []  # two RTX 3090 with a bridge
    assert said(links(), replace(GEFORCE, compute_capability="6.1")) == []  # NVIDIA's driver gives it P2P


@pytest.mark.parametrize("peers", [True, False])
def test_acs_and_the_iommu_are_problems_where_there_is_p2p(peers: bool) -> None:
    found = said(links({"acs": ["0000:00:01.0"], "iommu": "DMA-FQ"}, {"read": peers, "direct": peers}))
    assert found == [
        (peers, "ACS sends P2P through the host on 0000:00:01.0"),
        (peers, "the IOMMU translates what the GPUs read and write"),
    ]
    assert said(links({"iommu": "identity"})) == []


def test_why_transfers_between_gpus_may_never_end() -> None:
    slow = links({"acs": ["0000:00:01.0"], "iommu": "DMA-FQ"})
    found = "; ".join(message for problem, message in said(slow) if problem)
    assert can_hang(slow) == f"{found}: transfers between GPUs (NCCL) can hang there"
    assert can_hang(links({"acs": ["0000:00:01.0"]}, {"read": False})) == ""  # they go through the host anyway
    assert can_hang(links({"acs": ["0000:00:01.0"]}, {"nvlink": True})) == ""
    assert can_hang(links()) == ""


def test_errors_in_the_kernels_log() -> None:
    errors = (Xid(xid=79, bus="0000:01:00", text="fell off the bus"), Xid(xid=13, bus="0000:01:00"))
    assert said(links(xids=(*errors, errors[0]))) == [
        (True, "Xid 79 since boot: 2 times, most recently 0000:01:00: fell off the bus"),
        (False, "Xid 13 since boot: 0000:01:00"),
    ]


def test_a_driver_that_does_not_answer_or_hangs() -> None:
    assert said(Links(error="Driver Not Loaded", done=True)) == [(True, "NVML does not answer: Driver Not Loaded")]
    assert said(links().model_copy(update={"done": False}))[0] == (True, "the check did not finish")
