"""The rates at which the hosts of a run can download their weights, measured on all of them at the same time."""

from __future__ import annotations

from functools import partial

from rigup.connection.fact_cache import read_only
from rigup.connection.pyinfra_internals import at_work_on
from rigup.host import Host
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.weights.line_speed import bytes_per_second
from rigup.preflight.checks import missing_weights
from rigup.run.context import RunContext, ask_quietly

LEAST_BYTES = 2_000_000_000
"""Fewer are downloaded before a measurement is worth its time."""


def line_speeds(context: RunContext) -> dict[str, float]:
    """Bytes per second by host, for those about to download much from a hub that wants no token."""

    def measured(host: Host) -> float | None:
        settings = context.settings[host.name]
        for checkpoint in (each for plan in context.plans[host.name] for each in plan.checkpoints):
            hub, token = settings.source_of(checkpoint.location)
            if token is None and checkpoint.files and checkpoint.host_folder is None:
                report(Progress(host.name, "measure", text="how fast the hub sends, for five seconds"))
                with at_work_on(context.state, host), read_only():
                    return bytes_per_second(host, checkpoint, hub, settings.weights_limits[0])
        return None

    hosts = [host for host in context.state.inventory if _downloads(context, host.name)]
    return ask_quietly(context.state, {host.name: partial(measured, host) for host in hosts})


def _downloads(context: RunContext, name: str) -> bool:
    result = context.results[name]
    if "weights" not in result.pending_steps or result.probe is None or context.settings[name].packages.wheelhouse:
        return False
    return missing_weights(result.probe, context.plans[name]) >= LEAST_BYTES
