"""Benchmarks of an inventory's services: the client runs on the host and sends its results back.

It runs on the host because a service listens on loopback, and because streams through one SSH connection would delay
one another, which would distort the measurement.
"""

from __future__ import annotations

import time
from typing import Any

from pyinfra.api.command import QuoteString, StringCommand

from rigup import layout
from rigup.bench.client import BOOT, BenchRequest, program
from rigup.bench.lines import MOST_BYTES
from rigup.bench.result import LineCollector, show
from rigup.errors import HostFailed
from rigup.facts.probe import Probe
from rigup.host import Host, uses_sudo
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.health import endpoint
from rigup.plan import BoundPlan, Plan
from rigup.run.service_run import about
from rigup.systemd.api_key import wants_key

POLL_SECONDS = 0.5
STOP_SECONDS = 30.0
MOST_COMPLAINTS = 1 << 16
MOST_SAID = 1 << 30


def bench_service(host: Host, plan: BoundPlan, member: Plan, probe: Probe, wanted: BenchRequest) -> dict[str, Any]:
    """Measures one service of a host. Raises HostFailed, InputError or Unreachable on failure.

    member: the plan of the service in `plan`, which is another one in a swap group only.
    """
    name, unit = member.service.name, plan.service.name
    collected = LineCollector(f"{host.name}: {name}: ", lambda state: show(host.name, name, state))
    request = wanted.request(
        endpoint(plan),
        key_file=f"{layout.service_folder(unit)}/api-key" if wants_key(plan.service) else None,
        unit=layout.unit_name(unit),
        user=layout.WORKER_USER,
        gpus=bool(probe.gpus),
        **({"model": member.served_name} if plan.members else {}),
    )
    report(Progress(host.name, "bench", text=f"{name}: querying the endpoint"))
    last_words = follow(host, request, collected)
    return collected.result(wanted, about(host.name, plan, member, probe), last_words)


def follow(host: Host, request: dict[str, Any], collected: LineCollector) -> str:
    """Runs the client on the host; returns its error output. Ctrl-C and a lost connection end it early."""
    command = StringCommand("python3", "-I", "-c", QuoteString(BOOT))
    channel = host.connector.start(command, program(request), _sudo=uses_sudo(host))
    channel.settimeout(POLL_SECONDS)
    received, stopped, held, complaints, count = time.monotonic(), 0.0, b"", b"", 0
    try:
        while True:
            now = time.monotonic()
            if jobs.cancelled() and not stopped:
                stopped = now
                channel.shutdown_write()
            if now - received > request["timeout_s"] + STOP_SECONDS or (stopped and now - stopped > STOP_SECONDS):
                return "no output"
            while channel.recv_stderr_ready():
                complaints = (complaints + channel.recv_stderr(1 << 16))[-MOST_COMPLAINTS:]
            try:
                data = channel.recv(1 << 16)
            except TimeoutError:
                continue
            if not data:
                break
            received = time.monotonic()
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                collected.take(line)
            count += len(data)
            if len(held) > MOST_BYTES or count > MOST_SAID:
                raise HostFailed(f"{host.name}: the output of the benchmark is too long: {count} bytes")
    except remote.CONNECTION_ERRORS as error:
        return f"connection lost ({type(error).__name__})"
    finally:
        channel.close()
    lines = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
