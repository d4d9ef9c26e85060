"""Keeps the GPUs of hosts busy while NVML is asked what holds them back: with their services, or else with matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gevent

from rigup import layout
from rigup.bench.client import BOOT, BenchRequest, LevelRequest, multiplication
from rigup.bench.result import LineCollector, show
from rigup.bench.run import follow
from rigup.errors import HostFailed, RigupError
from rigup.facts.gpu_load import GpuLoad, HostLoad, products
from rigup.facts.host import RUNNING
from rigup.facts.probe import Probe, UnitState
from rigup.host import Host
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.endpoints import Endpoint, endpoint_of
from rigup.run.verification import VerifyRun

# enough at once that an engine always has a full batch, and short enough for every context
LEVEL = LevelRequest(concurrency=32, input=256, output=256)
SPARE_SECONDS = 300
_WITH_TORCH = (
    'for build; do if ls -d "$build"/lib/python3*/site-packages/torch >/dev/null 2>&1; then echo "$build"; fi; done'
)


def loads(run: VerifyRun, seconds: int) -> dict[str, HostLoad]:
    """What NVML said of each host's GPUs under load; a host that nothing can load fails."""
    found: dict[str, HostLoad] = {}

    def load(host: Host) -> None:
        found[host.name] = _loaded(host, run.results[host.name].probe or Probe(), seconds)
        if jobs.cancelled():
            raise jobs.Cancelled(f"{host.name}: the load was cancelled")

    run.context.each(load)
    return found


def _loaded(host: Host, probe: Probe, seconds: int) -> HostLoad:
    if not probe.gpus:
        raise HostFailed(f"{host.name}: it has no GPU to load", "omit --load")
    running = [name for name in probe.releases if probe.units.get(name, UnitState()).active in RUNNING]
    if not running:
        return _multiplied(host, probe, seconds)
    endpoints = [endpoint_of(host.name, name, probe.releases[name]) for name in running]
    asked = [endpoint for endpoint in endpoints if endpoint]
    if not asked:
        message = f"{host.name}: {', '.join(running)} runs across hosts, and only its head takes requests"
        raise HostFailed(message, "name the host of its head")
    started = [gevent.spawn(_outcome, host, endpoint, seconds) for endpoint in asked]
    gevent.joinall(started, raise_error=True)
    if errors := [one.value for one in started if isinstance(one.value, RigupError)]:
        raise errors[0]
    level = started[0].value  # each watches every GPU
    by = ", ".join(endpoint.service for endpoint in asked)
    return HostLoad(by=by, seconds=level["window_s"], gpus=[GpuLoad(**gpu) for gpu in level["gpus"]])


def _outcome(host: Host, endpoint: Endpoint, seconds: int) -> dict[str, Any] | RigupError:
    """The level, or the error, which gevent would print."""
    try:
        return _asked(host, endpoint, seconds)
    except RigupError as error:
        return error


def _asked(host: Host, endpoint: Endpoint, seconds: int) -> dict[str, Any]:
    """The level of a benchmark that keeps a service busy."""
    wanted = BenchRequest((replace(LEVEL, seconds=seconds),))
    collected = LineCollector(f"{endpoint.where}: ", lambda state: show(host.name, endpoint.service, state))
    request = wanted.request(
        endpoint.url,
        key_file=endpoint.key_file if remote.run(host, "test", "-f", endpoint.key_file).ok else None,
        unit=endpoint.unit,
        user=layout.WORKER_USER,
        gpus=True,
    )
    last_words = follow(host, request, collected)
    level: dict[str, Any] = collected.result(wanted, {}, last_words)["levels"][0]
    if not level["requests"]["all"] and not jobs.cancelled():
        why = next(iter(level["failures"]), "no answer")
        raise HostFailed(f"{endpoint.where}: it answered no request: {why}", "check the service: rigup logs")
    return level


def _multiplied(host: Host, probe: Probe, seconds: int) -> HostLoad:
    """The load of a host on which no service runs, by the torch of one of its builds."""
    folders = [f"{layout.BUILDS}/{name}" for name in probe.builds]
    found = remote.check_output(host, "sh", "-c", _WITH_TORCH, "sh", *folders).split()
    if not (build := next((folder for folder in reversed(folders) if folder in found), None)):
        raise HostFailed(
            f"{host.name}: no service runs here that could load the GPUs, and no build with torch is installed",
            "start a service (rigup start), or omit --load",
        )
    name = build.rpartition("/")[2]
    report(Progress(host.name, "verify", text=f"multiplying matrices for {seconds} s"))
    words = ("timeout", "-k", "5", str(seconds + SPARE_SECONDS), f"{build}/bin/python", "-I", "-c", BOOT)
    output = remote.run(
        host, *remote.as_worker(*words), stdin=multiplication(seconds), timeout=seconds + SPARE_SECONDS + 30
    )
    if not output.stdout.strip():
        raise HostFailed(f"{host.name}: multiplying with {name}: {output.last_line}", "on the host: nvidia-smi")
    load = products(output.stdout, f"products of matrices, by {name}")
    if isinstance(load, str):
        raise HostFailed(f"{host.name}: multiplying with {name}: {load}", "on the host: nvidia-smi")
    return load
