"""systemd units that must run, all compared in one command; pyinfra asks twice for each."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.operations import remote
from rigup.operations.steps import step
from rigup.planner.driver_packages import PERSISTENCE_UNIT
from rigup.render.power_unit import UNIT as POWER_UNIT

START_SECONDS = 120
# whatever asks for one of these reads all of them: to start systemctl costs a host more than what it is asked
_USUAL = (PERSISTENCE_UNIT, POWER_UNIT)


@dataclass(frozen=True)
class State:
    """What systemd says of a unit."""

    active: str = ""
    enabled: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it runs now and after the next boot; a static unit is started by others."""
        return self.active == "active" and self.enabled in ("enabled", "static", "indirect", "alias")


class UnitStates(FactBase[dict[str, State]]):
    """Reads the states of all services that are there, the usual units and others, in one command."""

    @staticmethod
    def default() -> dict[str, State]:
        return {}

    def command(self, others: tuple[str, ...] = ()) -> str:
        service = layout.unit_name("${folder##*/}")
        return (
            f"set -- {' '.join((*_USUAL, *others))}; for folder in {layout.service_folder('*')}/; do "
            f'folder=${{folder%/}}; [ -d "$folder" ] && set -- "$@" "{service}"; done; '
            'systemctl show --property=Id,ActiveState,UnitFileState "$@"'
        )

    def process(self, output: list[str]) -> dict[str, State]:
        states: dict[str, State] = {}
        fields: dict[str, str] = {}
        for line in [*output, ""]:
            name, found, value = line.partition("=")
            if found:
                fields[name] = value
            elif "Id" in fields:
                states[fields["Id"]] = State(fields.get("ActiveState", ""), fields.get("UnitFileState", ""))
                fields = {}
        return states


def unit_states(host: Any, *units: str) -> dict[str, State]:
    """The state of each of these, and of others; of those that systemd has never heard of, too."""
    others = tuple(unit for unit in units if unit not in _USUAL)
    states: dict[str, State] = host.get_fact(UnitStates, **({"others": others} if others else {}))
    return states


def service_state(host: Any, service: str) -> State:
    """The state of a service's unit; an empty one of a service that was never here."""
    return unit_states(host).get(layout.unit_name(service), State())


@operation()
def running_units(units: tuple[str, ...], restart: bool = False) -> Generator[FunctionCommand, None, None]:
    """Have these units enabled and running.

    + units: their names
    + restart: start them anew even where they run: what they depend on has changed
    """
    there = unit_states(host, *units)
    wrong = tuple(unit for unit in units if restart or not there.get(unit, State()).is_right)
    if not wrong:
        host.noop(f"{', '.join(units)} run")
        return
    yield step(_start, wrong)


def _start(host: Any, units: tuple[str, ...]) -> None:
    for unit in units:
        remote.ask(host, "systemctl", "reset-failed", unit)
        remote.ask(host, "systemctl", "--quiet", "enable", unit)
        if not remote.ask(host, "systemctl", "restart", unit, timeout=START_SECONDS).ok:
            lines = remote.ask(
                host, "journalctl", "--no-pager", "-o", "cat", "-n", "20", "-u", unit
            ).stdout.splitlines()
            own = [
                line for line in lines if line.strip() and not line.startswith((unit, "Starting ", "Failed to start"))
            ]
            raise HostFailed(
                f"{host.name}: {unit} does not start: {own[-1] if own else 'it says nothing'}",
                f"on the host: journalctl -u {unit}",
            )
