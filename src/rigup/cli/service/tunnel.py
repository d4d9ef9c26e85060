"""`rigup tunnel`: brings endpoints of services to this machine until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from gevent.event import Event

from rigup.cli.output import results as summary
from rigup.cli.output.lines import Lines, lines, print_json
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import unplanned
from rigup.connection.signals import ended_by_signals
from rigup.connection.tunnel import OpenTunnel
from rigup.errors import HostFailed, InputError, Refused
from rigup.operations.service.endpoints import Endpoint
from rigup.run.hosts_run import HostsRun
from rigup.run.result import exit_code
from rigup.run.services.endpoints import PORTS_TRIED, endpoints_of, key_of, open_tunnel

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
    errors = lines(stderr=True)
    project = unplanned.project_with(args, args.service, gateways=True)
    with unplanned.open_unplanned(args, project, HostsRun) as run, ended_by_signals() as ended, ExitStack() as doors:
        run.connect(take_lease=False)
        tunnels = _opened(run, endpoints_of(run, args.service), args.port)
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


def _opened(run: HostsRun, found: Sequence[Endpoint], first: int | None) -> list[tuple[Endpoint, OpenTunnel]]:
    """The tunnels that could be opened. first: the first port to use; None for the services' own."""
    tunnels: list[tuple[Endpoint, OpenTunnel]] = []
    for number, endpoint in enumerate(found):
        port = endpoint.port if first is None else first + number
        ports = range(port, min(port + (PORTS_TRIED if first is None else 1), 65_536))
        door = open_tunnel(run, endpoint, ports)
        if door is None:
            continue
        if first is not None and door.port != port:
            raise InputError(f"--port: {port} is not free on this machine", "choose another, or omit --port")
        tunnels.append((endpoint, door))
    return tunnels


def _show(run: HostsRun, tunnels: Sequence[tuple[Endpoint, OpenTunnel]], as_json: bool) -> None:
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
