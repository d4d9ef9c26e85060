"""The NVSwitch fabric: CUDA does not start on its GPUs until the fabric manager has configured it."""

from __future__ import annotations

import time
from collections.abc import Generator

import gevent
from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.facts.probe import Probe, read_probe
from rigup.host import Host
from rigup.operations.driver.state import fabric_problem
from rigup.operations.primitives import jobs
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.units import seconds_text

STEP = "fabric"
FABRIC_SECONDS = 300.0
POLL_SECONDS = 3.0


@operation()
def ready_fabric(probe: Probe, restarted: bool = False) -> Generator[FunctionCommand, None, None]:
    """Ensures that the fabric is ready for every GPU, as NVML reports it.

    + probe: the host's state when it was probed
    + restarted: the fabric manager or the driver restarts before this, so the probe is outdated
    """
    if not restarted and not fabric_problem(probe):
        host.noop("the fabric is ready or absent")
        return
    yield step(_wait)


def _wait(host: Host) -> None:
    """Waits until the fabric is ready. Raises HostFailed if it failed, or is not ready after FABRIC_SECONDS."""
    began = time.monotonic()
    hint = "on the host: journalctl -u nvidia-fabricmanager; nvidia-smi -q | grep -A 3 Fabric"
    while problem := fabric_problem(probe := read_probe(host)):
        waited = time.monotonic() - began
        jobs.check_cancelled(f"{host.name}: {STEP}: cancelled while waiting for it")
        if "failed: " in problem:
            raise HostFailed(f"{host.name}: {STEP}: {problem}", hint)
        if probe.nvidia.fabric_manager.active == "failed":
            raise HostFailed(f"{host.name}: {STEP}: {problem}, and the fabric manager has failed", hint)
        if waited > FABRIC_SECONDS:
            raise HostFailed(f"{host.name}: {STEP}: {problem}, after {seconds_text(FABRIC_SECONDS)}", hint)
        report(Progress(host.name, STEP, text=f"waiting for the fabric, {waited:.0f} s: {problem}"))
        gevent.sleep(POLL_SECONDS)
