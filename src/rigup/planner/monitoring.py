"""Reads `monitoring = ...` from group_data: which exporters a host runs, and where they listen. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rigup.catalogue.tools.monitoring import exporter_facts
from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.plan import Monitoring
from rigup.planner.inputs.rig_and_services import check_listen
from rigup.planner.inputs.validation import check_keys, validated
from rigup.planner.multinode.ports import join_port, watch_port
from rigup.rig import Rig
from rigup.service import Service

_EXAMPLE = 'write monitoring = {}, or with settings: monitoring = {"dcgm_exporter": True, "listen": "10.0.0.5"}'


def read_monitoring(data: object, where: str, rig: Rig, services: Iterable[Service]) -> Monitoring:
    """Reads `monitoring = ...`. where: the path to it, for messages.

    Raises InputError if all exporters are off, a port is taken, or the rig has no GPUs for the GPU exporter.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be a table, not {quoted(data)}", _EXAMPLE)
    check_keys(data, Monitoring, where)
    wanted = validated(Monitoring, data, where)
    check_listen(wanted.listen, f"{where}.listen")
    if not wanted.listeners:
        raise InputError(f"{where}: every exporter is turned off", "leave monitoring out")
    _check_ports(wanted, where, rig, tuple(services))
    if wanted.dcgm_exporter and not rig.gpus:
        raise InputError(f"{where}.dcgm_exporter: this rig has no GPU", "leave it out")
    if wanted.dcgm_exporter and rig.os:
        check_packaged(where, rig.os)
    return wanted


def check_packaged(where: str, os: str) -> None:
    """Raises InputError if NVIDIA does not package its exporter for this system."""
    systems = exporter_facts().gpu_exporter.systems
    if os not in systems:
        raise InputError(
            f"{where}.dcgm_exporter: NVIDIA packages it for {', '.join(systems)}, not for {os}",
            "leave it out; rigup status shows GPU memory and temperature without it",
        )


def _check_ports(wanted: Monitoring, where: str, rig: Rig, services: tuple[Service, ...]) -> None:
    taken = {service.port: f"services.{service.name}" for service in services}
    for service in services if rig.hosts_per_service > 1 else ():
        for port in (join_port(service), watch_port(service)):
            taken[port] = f"traffic between the hosts of services.{service.name}"
    for key, port in wanted.listeners.items():
        if port in taken:
            raise InputError(f"{where}.{key}: {port} is taken by {taken[port]}", "choose another port")
        taken[port] = f"{where.rpartition(' ')[2]}.{key}"
