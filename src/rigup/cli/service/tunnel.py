"""`rigup tunnel`: brings endpoints of services to this machine until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import unplanned
from rigup.errors import HostFailed, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gevent.event import Event

    from rigup.connection.tunnel import OpenTunnel
    from rigup.operations.service.endpoints import Endpoint
    from rigup.run.hosts_run import HostsRun

EPILOG = """\
examples:
  rigup tunnel                           forward every service, each to a port of this machine
  rigup tunnel chat --limit gpu1.lan     forward one service of one host
  rigup tunnel chat coder --port 9000    use ports 9000, 9001, ...
  rigup tunnel gateway                   forward a gateway of the fleet
  rigup tunnel chat --json               print the addresses as JSON, then keep forwarding

exit codes: 0 ended by Ctrl-C, 1 a host failed or a connection was lost, 2 usage error or no host reachable
"""
LOOK_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds SERVICE, --port and the arguments of every verb that needs no plan."""
    parser.add_argument("service", nargs="*", metavar="SERVICE", help="select these services (default: all)")
    add_number(parser, "--port", "use port N of this machine, then the next (default: the service's)", None, 1, 65_535)
    unplanned.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Opens the tunnels, prints their addresses and waits for Ctrl-C."""
    opened = unplanned.open_unplanned(
        args, unplanned.hosts_run, check=lambda project: unplanned.check_service_names(project, args.service, True)
    )
    from rigup.cli.output import results as summary
    from rigup.connection.signals import ended_by_signals
    from rigup.run.result import exit_code
    from rigup.run.services.endpoints import endpoints_of

    errors = lines(stderr=True)
    with opened as run, ended_by_signals() as ended, ExitStack() as doors:
        run.connect(take_lease=False)
        found = endpoints_of(run, args.service)
        tunnels = [(endpoint, door) for endpoint, door in _opened(run, found, args.port) if door]
        for _, door in tunnels:
            doors.push(door.__exit__)
        results = list(run.results.values())
        summary.show_failed(results, errors)
        if not tunnels and not any(result.errors for result in results):
            raise Refused("no service was ever applied to these hosts", "run rigup diff to see what apply would do")
        if tunnels:
            _show(run, tunnels, args.json)
            _wait(run, tunnels, ended, errors)
    return exit_code(unplanned.results_of(run))


def _opened(run: HostsRun, found: Sequence[Endpoint], first: int | None) -> list[tuple[Endpoint, OpenTunnel | None]]:
    """A tunnel for each endpoint, or None where it fails. first: the first port to use; None for the services' own."""
    from rigup.errors import InputError
    from rigup.run.services.endpoints import PORTS_TRIED, open_tunnel

    tunnels: list[tuple[Endpoint, OpenTunnel | None]] = []
    for number, endpoint in enumerate(found):
        port = endpoint.port if first is None else first + number
        ports = range(port, min(port + (PORTS_TRIED if first is None else 1), 65_536))
        door = open_tunnel(run, endpoint, ports)
        if door and first is not None and door.port != port:
            raise InputError(f"--port: {port} is not free on this machine", "choose another, or omit --port")
        tunnels.append((endpoint, door))
    return tunnels


def _show(run: HostsRun, tunnels: Sequence[tuple[Endpoint, OpenTunnel]], as_json: bool) -> None:
    from rigup.run.services.endpoints import key_of

    rows: list[dict[str, Any]] = [
        {
            "host": endpoint.host,
            "service": endpoint.service,
            "model": endpoint.model or None,
            "base_url": f"{door.url}/v1",
            "api_key": key_of(run, endpoint) is not None,
        }
        for endpoint, door in tunnels
    ]
    if as_json:
        print_json({"schema": 1, "tunnels": rows})
        sys.stdout.flush()
        return
    for row in rows:
        model = f" ({row['model']})" if row["model"] else ""
        print(f"{row['host']} {row['service']}{model}: {row['base_url']}")
        if row["api_key"]:
            print(f"  it requires an API key; to see it: rigup key show {row['service']}")
    print(f"for OpenAI clients: export OPENAI_BASE_URL={rows[0]['base_url']}")
    print("open until Ctrl-C", flush=True)


def _wait(run: HostsRun, tunnels: Sequence[tuple[Endpoint, OpenTunnel]], ended: Event, errors: Lines) -> None:
    """Until Ctrl-C, or until no tunnel stands any more. Says once why a tunnel passes nothing on."""
    from rigup.cli.output import results as summary

    left = list(tunnels)
    while left and not ended.wait(LOOK_SECONDS):
        for endpoint, door in list(left):
            result, lost = run.results[endpoint.host], not door.stands
            if lost or door.refusal:
                left.remove((endpoint, door))
                why = "connection lost" if lost else door.refusal
                result.errors = []
                result.fail("failed", HostFailed(f"{endpoint.where}: {why}", "run rigup status, then the same command"))
                summary.show_results([result], errors)
