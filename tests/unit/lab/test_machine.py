"""Faults of a machine: of this lab's machine, and not of one that has its number; those that are there already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rigup.errors import HostFailed, InputError
from rigup.lab import machine
from rigup.lab.folder import LabRecord, make_folder
from rigup.lab.machine import Machine
from rigup.lab.network import network

RECORD = LabRecord(
    name="b", number=3, network=7, first_id=524288, suite="bookworm", base="bookworm-x", disk="4g", hosts=1
)


class Power:
    """Stands for the machine's control group: on until it is killed."""

    def __init__(self, calls: list[str]) -> None:
        self.populated, self.calls = True, calls

    def kill(self) -> None:
        self.populated = False
        self.calls.append("kill")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What is done to a running machine of number 3, whose network is 7."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls: list[str] = []
    power = Power(calls)
    monkeypatch.setattr(machine, "Cgroup", lambda number, index: power)
    monkeypatch.setattr(network, "identity", lambda number: 7)
    for name in ("plug", "connect", "disconnect"):
        monkeypatch.setattr(network, name, lambda *_, name=name: calls.append(name))
    make_folder(Machine(RECORD, 1).folder)
    return calls


@pytest.mark.parametrize(
    "fault", [Machine.power_off, Machine.power_on, Machine.cut, Machine.heal, lambda machine: machine.rate("8mbit")]
)
def test_a_machine_of_a_lab_that_is_not_up_is_not_another_labs(
    calls: list[str], fault: Callable[[Machine], None]
) -> None:
    stale = Machine(RECORD.model_copy(update={"network": 6}), 1)
    assert not stale.on
    with pytest.raises(InputError, match=r"^lab b is not running$") as raised:
        fault(stale)
    assert raised.value.hint == "rigup lab up --name b"
    assert calls == []


def test_power_is_cut_twice_without_a_word(calls: list[str]) -> None:
    found = Machine(RECORD, 1)
    found.power_off()
    assert not found.on
    found.power_off()
    assert calls == ["plug", "kill", "disconnect", "kill", "disconnect"]


def test_a_machine_whose_cable_is_cut_is_started_and_not_waited_for(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(_: Machine) -> None:
        raise AssertionError("waited for SSH")

    found = Machine(RECORD, 1)
    monkeypatch.setattr(Machine, "wait_for_ssh", waits)
    found.cut()
    found.power_on()
    found.heal()
    with pytest.raises(AssertionError, match="waited for SSH"):
        found.power_on()


def test_a_machine_that_ended_before_ssh_answered_is_not_said_to_have_been_waited_for(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "_ssh_answers", lambda _: False)
    Machine(RECORD, 1).log.write_text("systemd-nspawn: no space\n")
    with pytest.raises(HostFailed, match=r"^b1: it stopped before SSH answered\nsystemd-nspawn: no space$"):
        Machine(RECORD, 1).wait_for_ssh()
