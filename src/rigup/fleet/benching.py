"""Benchmarks by inventory: the client runs on the host, beside the engine, and what it measured comes home.

On the host, because a service listens on its loopback, and because all streams through one SSH connection would wait
for each other: that would be measured, not the engine.
"""

from __future__ import annotations

import time
from typing import Any

from pyinfra.api.command import QuoteString, StringCommand

from rigup import layout
from rigup.facts.probe import Probe
from rigup.fleet.asking import about
from rigup.fleet.bench_progress import show
from rigup.operations import jobs, remote
from rigup.operations.progress import Progress, report
from rigup.plan import Plan
from rigup.render.api_key import wants_key
from rigup.verify.bench_client import BOOT, Wanted, program
from rigup.verify.bench_result import Collected
from rigup.verify.generation import endpoint

POLL_SECONDS = 0.5
STOP_SECONDS = 30.0


def bench_service(host: Any, plan: Plan, probe: Probe, wanted: Wanted) -> dict[str, Any]:
    """Measures one service of a host. Raises HostFailed, InputError or Unreachable where that cannot be."""
    name = plan.service.name
    collected = Collected(f"{host.name}: {name}: ", lambda said: show(host.name, name, said))
    request = wanted.request(
        endpoint(plan),
        key_file=f"{layout.service_folder(name)}/api-key" if wants_key(plan.service) else None,
        user=layout.WORKER_USER,
        gpus=bool(probe.gpus),
    )
    report(Progress(host.name, "bench", text=f"{name}: asking what it is"))
    last_words = _follow(host, request, collected)
    return collected.result(wanted, about(host.name, plan, probe), last_words)


def _follow(host: Any, request: dict[str, Any], collected: Collected) -> str:
    """Runs the program there to its end; what it complained of. Ctrl-C and a lost connection let it end early."""
    command = StringCommand("python3", "-I", "-c", QuoteString(BOOT))
    sudo = bool(getattr(host.data, "_sudo", None) or host.state.config.SUDO)
    channel = host.connector.start(command, program(request), _sudo=sudo)
    channel.settimeout(POLL_SECONDS)
    heard, stopped, held, complaints = time.monotonic(), 0.0, b"", b""
    try:
        while True:
            now = time.monotonic()
            if jobs.cancelled() and not stopped:
                stopped = now
                channel.shutdown_write()
            if now - heard > request["timeout_s"] + STOP_SECONDS or (stopped and now - stopped > STOP_SECONDS):
                return "it went silent"
            while channel.recv_stderr_ready():
                complaints += channel.recv_stderr(1 << 16)
            try:
                data = channel.recv(1 << 16)
            except TimeoutError:
                continue
            if not data:
                break
            heard = time.monotonic()
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                collected.take(line.decode(errors="replace"))
    except remote.LOST as error:
        return f"connection lost ({type(error).__name__})"
    finally:
        channel.close()
    spoken = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    return spoken[-1].strip() if spoken else ""
