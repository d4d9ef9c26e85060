"""The backends of a gateway by their names in HAProxy, their state there, and what would be left without some. Pure."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from rigup.gateway_settings import Backend

# How the section of a route begins, and its server where requests wait if they are held.
SECTION = "model-"
HELD = "held"
UP = "UP"
# SRV_ADMF_FMAINT and SRV_ADMF_FDRAIN: set through the admin socket. Source: HAProxy's include/haproxy/server-t.h.
_BY_COMMAND = 0x01 | 0x08
_NUMBER = re.compile("[0-9]{1,9}")


def backend_name(model: str) -> str:
    """The name of a route's section, whatever other routes there are: a gateway is told it before its own change."""
    # names of models may have characters that those of sections may not
    name = re.sub("[^A-Za-z0-9._-]", "-", model)
    return f"{SECTION}{name}" if name == model else f"{SECTION}{name}-{hashlib.sha256(model.encode()).hexdigest()[:8]}"


def server_name(backend: Backend) -> str:
    """The name of a backend in its section: that of its host, a dot, and its service's, which has none."""
    return f"{host_label(backend.host)}.{backend.service}"


def host_label(host: str) -> str:
    """How a host is called in the names of its backends."""
    return re.sub("[^A-Za-z0-9._-]", "-", host.rpartition("@")[2])


@dataclass(frozen=True)
class ServerState:
    """A backend as HAProxy sees it. status: "UP", "DOWN", "DRAIN", ... in_flight: requests that it has not answered.

    errors: connections that failed, answers that were not HTTP or broke off, and answers with a status of 500 or more.
    seconds: since its status changed.
    """

    status: str
    weight: int
    in_flight: int
    errors: int = 0
    seconds: int = 0


def servers_on(names: Iterable[str], hosts: Collection[str]) -> tuple[str, ...]:
    """Those of these backends, by their full names, SECTION/SERVER, that are on these hosts."""
    labels = {host_label(host) for host in hosts}
    return tuple(name for name in names if name.partition("/")[2].rpartition(".")[0] in labels)


def servers_of(names: Iterable[str], services: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """Those of these backends that are one of these services, which are by host."""
    wanted = {f"{host_label(host)}.{service}" for host, found in services.items() for service in found}
    return tuple(name for name in names if name.partition("/")[2] in wanted)


def read_states(answer: str) -> dict[str, ServerState]:
    """The backends in the answer to "show stat", by full name. Lines that are not of a backend are left out."""
    found = {}
    for row in _rows(answer):
        weight, in_flight = _number(row.get("weight")), _number(row.get("scur"))
        if weight is not None and in_flight is not None and row.get("svname") != "BACKEND":
            status = (row.get("status") or "").partition(" ")[0]
            errors = sum(_number(row.get(key)) or 0 for key in ("econ", "eresp", "hrsp_5xx"))
            state = ServerState(status, weight, in_flight, errors, _number(row.get("lastchg")) or 0)
            found[f"{row.get('pxname')}/{row.get('svname')}"] = state
    return found


def read_queues(answer: str) -> dict[str, int]:
    """How many requests wait for a backend, by section, from the answer to "show stat"."""
    rows = [row for row in _rows(answer) if row.get("svname") == "BACKEND"]
    return {str(row.get("pxname")): _number(row.get("qcur")) or 0 for row in rows}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _rows(answer: str) -> list[dict[str, str | None]]:
    try:
        return list(csv.DictReader(answer.removeprefix("# ").splitlines()))
    except csv.Error:
        return []


def taken_out(answer: str) -> tuple[str, ...]:
    """The backends that a command has taken out, from the answer to "show servers state", by full name."""
    rows = _server_rows(answer).items()
    return tuple(name for name, row in rows if (_number(row.get("srv_admin_state")) or 0) & _BY_COMMAND)


def _server_rows(answer: str) -> dict[str, dict[str, str]]:
    lines = [line.removeprefix("# ").split() for line in answer.splitlines()]
    header = next((line for line in lines if {"be_name", "srv_name", "srv_admin_state"} <= {*line}), [])
    rows = [dict(zip(header, line, strict=False)) for line in lines if len(line) == len(header) and line != header]
    return {f"{row['be_name']}/{row['srv_name']}": row for row in rows}


def ports_of(answer: str) -> dict[str, int]:
    """The port of each backend, by full name, from the answer to "show servers state"."""
    return {name: _number(row.get("srv_port")) or 0 for name, row in _server_rows(answer).items()}


def in_flight(states: Mapping[str, ServerState], servers: Collection[str]) -> int:
    """The requests that these backends have not answered."""
    return sum(states[name].in_flight for name in servers if name in states)


def left_without(states: Mapping[str, ServerState], hosts: Collection[str]) -> tuple[str, ...]:
    """The models that nobody would serve without these hosts, though one of them does now; held ones count as served.

    A model that nobody serves anyway is not among them: changing its hosts takes nothing away.
    """
    leaving = servers_on(states, hosts)
    found = []
    for section in dict.fromkeys(name.partition("/")[0] for name in leaving):
        servers = {name: state for name, state in states.items() if name.startswith(f"{section}/")}
        up = {name for name, state in servers.items() if state.status == UP and state.weight > 0}
        if f"{section}/{HELD}" not in states and up and not up - {*leaving}:
            found.append(section.removeprefix(SECTION))
    return tuple(found)
