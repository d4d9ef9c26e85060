"""What is said of a service that does not answer after its start, as far as its cards have to do with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import roles.gpus
import roles.service
from rigup.errors import HostFailed, HostLost
from rigup.facts.bounds import Unreadable
from rigup.facts.links import GpuLink, Links, PairLink
from rigup.facts.probe import Probe, ProbedGpu
from rigup.operations.driver import links
from rigup.operations.service.health import NotReady
from rigup.preflight.links import can_hang
from tests.unit.planner.asking import decided

LATE = "box: chat did not become healthy within 860 s: HTTP 503: loading"
WAY = "rigup verify box says how to switch that off; or try NCCL_P2P_DISABLE=1 in `environment`"
THROUGH_HOST = Links(
    gpus=tuple(GpuLink(gpu=index, bus=f"0000:0{index}:00.0", acs=["0000:00:03.1"]) for index in (0, 1)),
    pairs=(PairLink(pair=[0, 1], read=True),),
    done=True,
)
FOUND = f"{can_hang(THROUGH_HOST)}: {WAY}"
GONE = "GPU 1 (NVIDIA GeForce RTX 4090, GPU-1) does not respond: GPU is lost"
HOST: Any = SimpleNamespace(name="box")


@pytest.mark.parametrize(
    ("gpus", "error", "read", "message"),
    [
        ("2x RTX 4090", NotReady(LATE), THROUGH_HOST, f"{LATE}; {FOUND}"),
        ("RTX PRO 6000 Blackwell Workstation Edition", NotReady(LATE), THROUGH_HOST, LATE),
        ("2x RTX 4090", HostFailed("it ended"), THROUGH_HOST, "it ended"),
        ("2x RTX 4090", NotReady(LATE), Links(done=True), LATE),
        ("2x RTX 4090", NotReady(LATE), Unreadable("of another kind"), LATE),
    ],
    ids=["two cards", "one card", "not a wait", "links that do what they can", "unreadable links"],
)
def test_a_wait_that_links_between_cards_may_explain(
    monkeypatch: pytest.MonkeyPatch, gpus: str, error: HostFailed, read: Links | Exception, message: str
) -> None:
    assert "0000:00:03.1" in FOUND
    monkeypatch.setattr(roles.service, "ask_after_start", Mock(side_effect=error))
    monkeypatch.setattr(links, "read_links", Mock(side_effect=[read]))
    monkeypatch.setattr(roles.gpus, "read_probe", Mock(side_effect=HostFailed("it says nothing")))
    plan = decided(gpus, {"model": "Qwen3.6-27B", "engine": "llama.cpp"})
    with pytest.raises(HostFailed) as caught:
        roles.service.ask(HOST, plan, str)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("error", "lost", "message"),
    [
        (HostFailed("box: chat: it ended"), "GPU is lost", f"box: {GONE}; chat: it ended"),
        (NotReady(LATE), "GPU is lost", f"box: {GONE}; {LATE.removeprefix('box: ')}"),
        (HostFailed("box: chat: it ended"), "", "box: chat: it ended"),
        (HostLost("box: the host is gone"), "GPU is lost", "box: the host is gone"),
    ],
    ids=["ended", "late", "none", "host"],
)
def test_a_card_that_was_lost_meanwhile_is_named_first(
    monkeypatch: pytest.MonkeyPatch, error: HostFailed, lost: str, message: str
) -> None:
    plan = decided("2x RTX 4090", {"model": "Qwen3.6-27B", "engine": "llama.cpp"})
    cards = tuple(
        ProbedGpu(gpu.name, index=index, uuid=f"GPU-{index}", error=lost * index)
        for index, gpu in enumerate(plan.rig.gpus)
    )
    monkeypatch.setattr(roles.service, "ask_after_start", Mock(side_effect=error))
    monkeypatch.setattr(roles.gpus, "read_probe", Mock(return_value=Probe(gpus=cards)))
    with pytest.raises(HostFailed) as caught:
        roles.service.ask(HOST, plan, str)
    assert caught.value.message == message
    assert ('gpus = "1x RTX 4090"' in (caught.value.hint or "")) == (GONE in message)
