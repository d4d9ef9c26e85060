"""The backends of a gateway by their names in HAProxy, their state there, and what would be left without some. Pure."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from rigup.gateway.haproxy import backend_name, server_name
from rigup.settings import GatewayPlan

UP = "UP"
# SRV_ADMF_FMAINT and SRV_ADMF_FDRAIN: set through the admin socket. Source: HAProxy's include/haproxy/server-t.h.
_BY_COMMAND = 0x01 | 0x08
_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True)
class ServerState:
    """A backend as HAProxy sees it. status: "UP", "DOWN", "DRAIN", ... in_flight: requests that it has not answered."""

    status: str
    weight: int
    in_flight: int


def servers_on(plan: GatewayPlan, hosts: Collection[str]) -> tuple[str, ...]:
    """The full names, SECTION/SERVER, of the backends on these hosts."""
    return tuple(
        f"{backend_name(route.model)}/{server_name(backend)}"
        for route in plan.routes
        for backend in route.backends
        if backend.host in hosts
    )


def read_states(answer: str) -> dict[str, ServerState]:
    """The backends in the answer to "show stat", by full name. Lines that are not of a backend are left out."""
    found = {}
    for row in _rows(answer):
        name, weight, in_flight = f"{row.get('pxname')}/{row.get('svname')}", row.get("weight"), row.get("scur")
        if _is_number(weight) and _is_number(in_flight) and row.get("svname") != "BACKEND":
            status = (row.get("status") or "").partition(" ")[0]
            found[name] = ServerState(status, int(weight), int(in_flight))
    return found


def _rows(answer: str) -> list[dict[str, str | None]]:
    try:
        return list(csv.DictReader(answer.removeprefix("# ").splitlines()))
    except csv.Error:
        return []


def _is_number(text: str | None) -> TypeGuard[str]:
    return text is not None and _NUMBER.fullmatch(text) is not None


def taken_out(answer: str) -> tuple[str, ...]:
    """The backends that a command has taken out, from the answer to "show servers state", by full name."""
    lines = [line.removeprefix("# ").split() for line in answer.splitlines()]
    header = next((line for line in lines if {"be_name", "srv_name", "srv_admin_state"} <= {*line}), [])
    rows = [dict(zip(header, line, strict=False)) for line in lines if len(line) == len(header) and line != header]
    return tuple(
        f"{row['be_name']}/{row['srv_name']}"
        for row in rows
        if _is_number(row["srv_admin_state"]) and int(row["srv_admin_state"]) & _BY_COMMAND
    )


def in_flight(states: Mapping[str, ServerState], servers: Collection[str]) -> int:
    """The requests that these backends have not answered."""
    return sum(states[name].in_flight for name in servers if name in states)


def left_without(plan: GatewayPlan, states: Mapping[str, ServerState], hosts: Collection[str]) -> tuple[str, ...]:
    """The models that nobody would serve without these hosts, though one of them does now; held ones count as served.

    A model that nobody serves anyway is not among them: changing its hosts takes nothing away.
    """
    if plan.gateway.hold:
        return ()
    found = []
    for route in plan.routes:
        section = backend_name(route.model)
        names = {f"{section}/{server_name(backend)}": backend.host for backend in route.backends}
        up = {host for name, host in names.items() if _takes_requests(states.get(name))}
        if up & {*hosts} and not up - {*hosts}:
            found.append(route.model)
    return tuple(found)


def _takes_requests(state: ServerState | None) -> bool:
    return state is not None and state.status == UP and state.weight > 0
