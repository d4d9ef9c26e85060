"""A reboot is allowed, waited for, and its end is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.driver import reboots


class Machine:
    """Stands for a host: after `systemctl reboot` it is out of reach for some questions, then up in another boot."""

    def __init__(self, silent: int) -> None:
        self.name, self.data = "box", SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.connector_data: dict[str, Any] = {}
        self.connector = SimpleNamespace(disconnect=lambda: None)
        self.connected = True
        self.silent, self.rebooting, self.told = silent, False, []  # type: ignore[var-annotated]

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        line = command.get_raw_value()
        self.told.append(line)
        if "systemctl reboot" in line:
            self.rebooting = True
        elif self.rebooting and self.silent > 0:
            self.silent -= 1
            raise OSError("not connected")
        return True, SimpleNamespace(stdout="second" if self.rebooting else "first", stderr="")

    def connect(self, **_: Any) -> None:
        """Never fails here: what fails is the question after it."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboots, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(reboots, "_permitted", False)


def test_nothing_is_rebooted_that_nobody_allowed() -> None:
    machine = Machine(silent=0)
    with pytest.raises(HostFailed) as caught:
        reboots.reboot(machine, "driver", "no module")
    assert caught.value.message == "box: driver: a reboot is required (no module) but not permitted"
    assert machine.told == []


def test_it_is_waited_for_and_what_must_follow_is_done_first() -> None:
    reboots.permit()
    machine, order = Machine(silent=5), []
    reboots.afterwards(machine, lambda: order.append(list(machine.told)))
    assert not reboots.rebooted(machine)
    reboots.reboot(machine, "driver", "no module")
    assert reboots.rebooted(machine)
    (before,) = order
    assert any("is-system-running" in line for line in machine.told)
    assert not any("is-system-running" in line for line in before)


def test_a_machine_that_stays_away_is_a_failure_that_says_how_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reboots, "BOOT_SECONDS", 0.05)
    reboots.permit()
    machine = Machine(silent=10**9)
    with pytest.raises(HostFailed) as caught:
        reboots.reboot(machine, "driver", "no module")
    assert "not reachable within 0.05 s" in caught.value.message
    assert "console" in (caught.value.hint or "")
    assert not reboots.rebooted(machine)


def test_big_machines_are_given_a_quarter_of_an_hour() -> None:
    assert reboots.BOOT_SECONDS == 900
