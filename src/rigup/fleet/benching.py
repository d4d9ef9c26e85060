"""Benchmarks by inventory: the client runs on the host, beside the engine, and what it measured comes home.

On the host, because a service listens on its loopback, and because all streams through one SSH connection would wait
for each other: that would be measured, not the engine.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from pyinfra.api.command import QuoteString, StringCommand

from rigup import layout
from rigup.errors import HostFailed, InputError, RigupError
from rigup.facts.probe import Probe
from rigup.fleet.bench_progress import show
from rigup.fleet.runner import Run, load_provision
from rigup.operations import jobs, remote
from rigup.operations.builds import name_of
from rigup.operations.progress import Progress, report
from rigup.plan import Plan
from rigup.render.api_key import wants_key
from rigup.verify.bench_client import BOOT, Wanted, program
from rigup.verify.bench_result import Collected
from rigup.verify.generation import endpoint

POLL_SECONDS = 0.5
STOP_SECONDS = 30.0
# what says nothing about how the service runs
BESIDE_THE_PLAN = {"host", "warnings", "refusals", "silenced", "alternatives", "figures"}


class BenchRun(Run):
    """A run that measures; what it changes on a host is the lease alone."""

    def bench(self, wanted: Wanted, service: str | None) -> list[dict[str, Any]]:
        """Measures every service, or those of this name: hosts side by side, the services of one after the other."""
        measured: list[dict[str, Any]] = []
        self._each(lambda host: self._bench(host, wanted, service, measured))
        return measured

    def _bench(self, host: Any, wanted: Wanted, service: str | None, measured: list[dict[str, Any]]) -> None:
        result, errors = self.results[host.name], []
        assert result.probe is not None
        for plan in self.plans[host.name]:
            if service not in (None, plan.service.name) or plan.rank:
                continue
            if jobs.cancelled():
                raise jobs.Cancelled(f"{host.name}: {plan.service.name}: cancelled before it was measured")
            try:
                measured.append(bench_service(host, plan, wanted, result.probe))
            except RigupError as error:
                errors.append(error)
        result.state = "unchanged"
        if errors:
            result.errors += errors[:-1]
            raise errors[-1]


def bench_service(host: Any, plan: Plan, wanted: Wanted, probe: Probe) -> dict[str, Any]:
    """Measures one service of a host. Raises HostFailed, InputError or Unreachable where that cannot be."""
    name = plan.service.name
    if name not in probe.releases:
        raise HostFailed(f"{host.name}: {name} was never applied here", "rigup diff shows what apply would do")
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


def about(host: str, plan: Plan, probe: Probe) -> dict[str, Any]:
    """What was measured: the plan, and the release that really runs there."""
    assert plan.build is not None and plan.checkpoint is not None and plan.parallel is not None
    name = plan.service.name
    release = probe.releases[name]
    load_provision()
    from roles.service import release_of

    planned = release_of(plan, name_of(plan.build, probe.architecture, probe.os)).manifest
    return {
        "host": host,
        "group": plan.group,
        "service": name,
        "engine": plan.build.engine,
        "version": plan.build.version,
        "build": release.get("build"),
        "checkpoint": release.get("checkpoint"),
        "parallel": plan.parallel.model_dump(),
        "context": plan.context,
        "plan": plan_digest(plan),
        "release": probe.current.get(name),
        "drift": [key for key in planned if release.get(key) != planned[key]],
        "driver": probe.nvidia.loaded,
        "gpus": [gpu.name for gpu in probe.gpus],
    }


def plan_digest(plan: Plan) -> str:
    """Equal for plans that put the same on a host, whatever the host's name, and whatever was said of other choices."""
    content = json.dumps(plan.model_dump(mode="json", exclude=BESIDE_THE_PLAN), sort_keys=True)
    return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def check_service(plans: dict[str, tuple[Plan, ...]], service: str | None) -> None:
    """Raises InputError where no host of these has a service of that name."""
    known = list(dict.fromkeys(plan.service.name for each in plans.values() for plan in each))
    if service is not None and service not in known:
        raise InputError(f'--service: no service "{service}" here', f"services: {', '.join(known)}")
