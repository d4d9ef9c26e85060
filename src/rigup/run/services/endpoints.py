"""The endpoints of a run's hosts: of their services, as the current releases say, and of their gateways."""

from __future__ import annotations

from collections.abc import Sequence

from rigup.connection.tunnel import OpenTunnel
from rigup.errors import HostFailed, RigupError
from rigup.gateway.inventory import read_gateway
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.service.endpoints import Endpoint, endpoint_of
from rigup.operations.service.health import local_address
from rigup.operations.service.history import damage_hint
from rigup.project.inventory import HostEntry
from rigup.run.hosts_run import GATEWAY, HostsRun, firsts_in, services_in

PORTS_TRIED = 50


def endpoints_of(run: HostsRun, wanted: Sequence[str]) -> list[Endpoint]:
    """The endpoints of the services of this name, or of all, by the order of the inventory.

    A host that should have one and has none fails; hosts of a node group have one together, at its head.
    """
    found: list[Endpoint] = []
    for entry in run.context.project.hosts:
        result = run.results[entry.name]
        if result.state != "pending":
            continue
        try:
            found += _of_host(run, entry, wanted)
        except HostFailed as error:
            result.fail("failed", error)
    return found


def _of_host(run: HostsRun, entry: HostEntry, wanted: Sequence[str]) -> list[Endpoint]:
    probe, found = run.context.handshakes[entry.name].probe, []
    there = {name: name for name in (*services_in((entry,)), *probe.current)}
    for name, first in (there | firsts_in(entry)).items():
        if name not in (wanted or there):
            continue
        if damage := probe.damaged.get(first):
            raise HostFailed(f"{entry.name}: {damage}", damage_hint(first, current=True))
        if probe.rests(first):
            if wanted:
                raise HostFailed(f"{entry.name}: {name} is stopped", f"start it: rigup start {first}")
            continue
        release = probe.releases.get(first)
        endpoint = endpoint_of(entry.name, name, release, first) if release is not None else None
        never = release is None or (first != name and endpoint is None)
        if wanted and never:
            raise HostFailed(f"{entry.name}: {name} was never applied", "run rigup diff to see what apply would do")
        found += [endpoint] if endpoint else []
    if "gateway" in entry.data and GATEWAY in (wanted or (GATEWAY,)):
        gateway = read_gateway(entry.data["gateway"], f"{entry.origins['gateway']}: gateway")
        url = local_address(gateway.listen, gateway.port, tls=gateway.tls is not None)
        found.append(Endpoint(entry.name, GATEWAY, url, ""))
    return found


def open_tunnel(run: HostsRun, endpoint: Endpoint, ports: Sequence[int] = ()) -> OpenTunnel | None:
    """A tunnel to the endpoint, for a `with` statement; None where it fails, which the host's result then says.

    ports: of this machine, to be tried first.
    """
    host, result = run.context.state.inventory.get_host(endpoint.host), run.results[endpoint.host]
    try:
        return OpenTunnel(host, endpoint.url, endpoint.unit, endpoint.where, ports).__enter__()
    except RigupError as error:
        result.fail("failed", error)
    except remote.CONNECTION_ERRORS:
        result.fail("failed", HostFailed(f"{endpoint.where}: connection lost", "run the same command again"))
    return None


def key_of(run: HostsRun, endpoint: Endpoint) -> str | None:
    """The API key of a service, from its host; None if it needs none. Raises as `remote.run` does."""
    return read_key(run.context.state.inventory.get_host(endpoint.host), endpoint.key_file)


def read_key(host: Host, path: str) -> str | None:
    """The API key in a file of a host; None if it does not exist."""
    output = remote.run(host, "cat", "--", path)
    return output.stdout.strip() if output.ok else None
