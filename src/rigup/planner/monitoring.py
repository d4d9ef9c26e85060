"""From `monitoring = ...` in group_data to which exporters a host runs, and where they listen. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from rigup.catalogue.monitoring import exporter_facts
from rigup.errors import InputError
from rigup.planner.complaints import check_keys, quoted, validated
from rigup.planner.reading import is_address
from rigup.planner.spreading import join_port, watch_port
from rigup.rig import Rig
from rigup.service import Service
from rigup.units import Frozen

Port = Annotated[int, Field(ge=1, le=65535)]
_EXAMPLE = 'monitoring = {} is enough; monitoring = {"dcgm_exporter": True, "listen": "10.0.0.5"} says more'


class Monitoring(Frozen):
    """`monitoring` in group_data. port: of the node exporter. dcgm_exporter: NVIDIA's, of the GPUs."""

    node_exporter: bool = True
    dcgm_exporter: bool = False
    listen: str = "127.0.0.1"
    port: Port = 9100
    dcgm_port: Port = 9400

    @property
    def listeners(self) -> dict[str, int]:
        """The ports that exporters listen on, by the key that names each."""
        wanted = {"port": self.node_exporter and self.port, "dcgm_port": self.dcgm_exporter and self.dcgm_port}
        return {key: int(port) for key, port in wanted.items() if port}


def read_monitoring(data: object, where: str, rig: Rig, services: Iterable[Service]) -> Monitoring:
    """What `monitoring = ...` means. `where` is the path to it, for messages.

    Raises InputError for what cannot be: no exporter at all, a port that is taken, GPUs that there are not.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be a table, not {quoted(data)}", _EXAMPLE)
    check_keys(data, Monitoring, where)
    wanted = validated(Monitoring, data, where)
    if not is_address(wanted.listen):
        raise InputError(
            f"{where}.listen: {quoted(wanted.listen)} is not an address of a machine",
            'use "127.0.0.1" for this host alone, "0.0.0.0" for every network, or one of its addresses',
        )
    if not wanted.listeners:
        raise InputError(f"{where}: no exporter is left", "leave monitoring out")
    _check_ports(wanted, where, rig, tuple(services))
    if wanted.dcgm_exporter and not rig.gpus:
        raise InputError(f"{where}.dcgm_exporter: this rig has no GPU", "leave it out")
    if wanted.dcgm_exporter and rig.os:
        check_packaged(where, rig.os)
    return wanted


def check_packaged(where: str, os: str) -> None:
    """Raises InputError for a system that NVIDIA does not package its exporter for."""
    systems = exporter_facts().gpu_exporter.systems
    if os not in systems:
        raise InputError(
            f"{where}.dcgm_exporter: NVIDIA packages it for {', '.join(systems)}, not for {os}",
            "leave it out; rigup status shows memory and temperature of the GPUs without it",
        )


def _check_ports(wanted: Monitoring, where: str, rig: Rig, services: tuple[Service, ...]) -> None:
    taken = {service.port: f"services.{service.name}" for service in services}
    for service in services if rig.hosts_per_service > 1 else ():
        for port in (join_port(service), watch_port(service)):
            taken[port] = f"the hosts of services.{service.name} among themselves"
    for key, port in wanted.listeners.items():
        if port in taken:
            raise InputError(f"{where}.{key}: {port} is taken by {taken[port]}", "give each a port of its own")
        taken[port] = f"{where.rpartition(' ')[2]}.{key}"
