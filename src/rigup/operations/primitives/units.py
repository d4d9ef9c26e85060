"""systemd units that must run, compared in one command (pyinfra needs two per unit)."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import NamedTuple

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup import layout
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.planner.driver_packages import PERSISTENCE_UNIT
from rigup.systemd.power_limit import UNIT as POWER_UNIT

START_SECONDS = 120
STOP_SECONDS = 180.0
LONGEST_STOP = 3660
"""What a unit of rigup may say: the longest drain_timeout, and a minute for the engine."""
_LIMITS = "grep -hs ^TimeoutStopSec= /etc/systemd/system/rigup-*.service /etc/containers/systemd/rigup-*.container"
# every request for one of these reads all of them: starting systemctl takes longer than the query
_USUAL = (PERSISTENCE_UNIT, POWER_UNIT)


def stop_limit(host: Host) -> float:
    """Seconds after which a command that stops services of this host must have returned."""
    return STOP_SECONDS + stop_seconds(host)


def stop_seconds(host: Host) -> float:
    """How long the services of this host may take to stop, requests in flight included, as their units say.

    systemd counts a unit's limit for its ExecStop, and again for its engine. Units stop beside each other.
    """
    lines = remote.run(host, "sh", "-c", _LIMITS).stdout.split()
    limits = [number for _, _, number in (line.partition("=") for line in lines) if re.fullmatch("[0-9]{1,5}", number)]
    return 2.0 * min(max(map(int, limits), default=0), LONGEST_STOP)


class State(NamedTuple):
    """The state of a unit in systemd."""

    active: str = ""
    enabled: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it runs now and after the next boot; other units start a static one."""
        return self.active == "active" and self.enabled in ("enabled", "static", "indirect", "alias")


class UnitStates(FactBase[dict[str, State]]):
    """Reads the states of all services of the host, the usual units and others, in one command."""

    default = dict

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


def unit_states(host: Host, *units: str) -> dict[str, State]:
    """The states of at least these units, including units that systemd does not know."""
    others = tuple(unit for unit in units if unit not in _USUAL)
    states: dict[str, State] = host.get_fact(UnitStates, **({"others": others} if others else {}))
    return states


def unit_state(host: Host, unit: str) -> State:
    """The state of one unit; empty for one that systemd does not know."""
    return unit_states(host, unit).get(unit, State())


def service_state(host: Host, service: str) -> State:
    """The state of a service's unit; empty for an unknown service."""
    return unit_states(host).get(layout.unit_name(service), State())


@operation()
def running_units(units: tuple[str, ...], restart: bool = False) -> Generator[FunctionCommand, None, None]:
    """Ensures that these units are enabled and running.

    + units: their names
    + restart: restart running ones, because their dependencies have changed
    """
    there = unit_states(host, *units)
    wrong = tuple(unit for unit in units if restart or not there.get(unit, State()).is_right)
    if not wrong:
        host.noop(f"{', '.join(units)} run")
        return
    yield step(_start, wrong)


def _start(host: Host, units: tuple[str, ...]) -> None:
    for unit in units:
        remote.run(host, "systemctl", "reset-failed", unit)
        remote.run(host, "systemctl", "--quiet", "enable", unit)
        if not remote.run(host, "systemctl", "restart", unit, timeout=START_SECONDS).ok:
            lines = remote.log_lines(host, unit, 20)
            own = [line for line in lines if not line.startswith((unit, "Starting ", "Failed to start"))]
            raise HostFailed(
                f"{host.name}: {unit} does not start: {own[-1] if own else 'no output'}",
                f"on the host: journalctl -u {unit}",
            )
