"""The fabric of NVSwitches is waited for, not for ever, and what is wrong with it is said."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rigup.errors import HostFailed
from rigup.facts.probe import FabricManager, Nvidia, Probe, ProbedGpu
from rigup.operations.driver import fabric
from rigup.operations.driver.fabric import _wait
from rigup.operations.driver.state import fabric_problem
from rigup.operations.primitives import jobs

HOST = SimpleNamespace(name="box")


def having(*states: str, manager: str = "active") -> Probe:
    gpus = tuple(ProbedGpu("NVIDIA B200", index=index, fabric=state) for index, state in enumerate(states))
    return Probe(gpus=gpus, nvidia=Nvidia(fabric_manager=FabricManager(active=manager)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Probe]:
    """What the host answers, one probe after the other; the last one for ever. Nothing is slept."""
    probes: list[Probe] = []
    monkeypatch.setattr(fabric, "read_probe", lambda host: probes.pop(0) if len(probes) > 1 else probes[0])
    monkeypatch.setattr(fabric.gevent, "sleep", lambda seconds: None)
    return probes


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ((), ""),
        (("", ""), ""),
        (("completed", "completed"), ""),
        (("completed", "in progress", "in progress"), "in progress on GPU 1, 2"),
        (("not started", "failed: Unknown Error"), "not started on GPU 0; failed: Unknown Error on GPU 1"),
    ],
)
def test_what_is_not_ready_is_one_line(states: tuple[str, ...], words: str) -> None:
    assert fabric_problem(having(*states)) == words


def test_it_is_waited_for(asked: list[Probe]) -> None:
    asked += [having("not started"), having("in progress"), having("completed"), having("in progress")]
    _wait(HOST)
    assert asked == [having("in progress")], "it asked again after the fabric was ready"


def test_a_host_without_a_fabric_is_not_waited_for(asked: list[Probe]) -> None:
    asked += [having(""), having("in progress")]
    _wait(HOST)
    assert asked == [having("in progress")], "it asked again"


@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (having("completed", "failed: Unknown Error"), "failed: Unknown Error on GPU 1"),
        (having("in progress", manager="failed"), "in progress on GPU 0, and the fabric manager has failed"),
    ],
)
def test_what_failed_is_not_waited_for(asked: list[Probe], probe: Probe, words: str) -> None:
    asked += [probe]
    with pytest.raises(HostFailed) as caught:
        _wait(HOST)
    assert caught.value.message == f"box: fabric: {words}"
    assert "journalctl -u nvidia-fabricmanager" in (caught.value.hint or "")


def test_it_is_not_waited_for_for_ever(asked: list[Probe], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "FABRIC_SECONDS", -1.0)
    asked += [having("in progress")]
    with pytest.raises(HostFailed, match=r"^box: fabric: in progress on GPU 0, after "):
        _wait(HOST)


def test_waiting_can_be_cancelled(asked: list[Probe], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "cancelled", lambda: True)
    asked += [having("in progress")]
    with pytest.raises(jobs.Cancelled):
        _wait(HOST)
