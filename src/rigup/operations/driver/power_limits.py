"""A power limit for every GPU, set now and at every boot, within the bounds that NVML reports."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.facts.probe import Probe, ProbedGpu, read_probe
from rigup.host import Host
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles
from rigup.operations.primitives.units import unit_state
from rigup.systemd.power_limit import NVIDIA_SMI, PATH, UNIT, power_unit


@operation()
def power_limit(limit_w: int | None, probe: Probe, restart: bool = False) -> Generator[FunctionCommand, None, None]:
    """Ensures that every GPU has this power limit, also after a reboot; None removes the limit.

    + limit_w: watts
    + probe: the host's state when it was probed
    + restart: set the limit again regardless of the probe, because the driver is reloaded in between
    """
    text = power_unit(limit_w) if limit_w is not None else ""
    there = host.get_fact(TextFiles, paths=(PATH,)).get(PATH, "")
    if limit_w is None:
        if there:
            yield step(_remove)
        else:
            host.noop("rigup sets no power limit")
        return
    _refuse(host.name, limit_w, probe.gpus)
    unit = unit_state(host, UNIT)
    limited = bool(probe.gpus) and all(gpu.power.limit_w == limit_w for gpu in probe.gpus)
    if there == text.strip() and unit.is_right and limited and not restart:
        host.noop(f"every GPU is limited to {limit_w} W")
        return
    yield step(_limit, limit_w, text)


def outside(limit_w: int, gpus: tuple[ProbedGpu, ...]) -> str:
    """Text of the GPUs that do not accept this limit, with their bounds; "" for none. Ignores unknown bounds."""
    wrong = [
        f"GPU {gpu.index} ({gpu.name}) accepts {gpu.power.least_w:g} to {gpu.power.most_w:g} W"
        for gpu in gpus
        if gpu.power.least_w is not None
        and gpu.power.most_w is not None
        and not gpu.power.least_w <= limit_w <= gpu.power.most_w
    ]
    return f"{limit_w} W is out of bounds: {', '.join(wrong)}" if wrong else ""


def without_limit(gpus: tuple[ProbedGpu, ...]) -> tuple[str, ...]:
    """The GPUs that report data but no power limit; excludes GPUs without a loaded driver."""
    return tuple(
        f"GPU {gpu.index} ({gpu.name})" for gpu in gpus if gpu.compute_capability and gpu.power.limit_w is None
    )


def _refuse(host: str, limit_w: int, gpus: tuple[ProbedGpu, ...]) -> None:
    """Raises HostFailed if a GPU does not accept the limit or cannot be limited; nothing is written by then."""
    if silent := without_limit(gpus):
        has = "have" if len(silent) > 1 else "has"
        raise HostFailed(
            f"{host}: rig.power_limit_w: {' and '.join(silent)} {has} no adjustable power limit",
            "remove power_limit_w from rig",
        )
    if wrong := outside(limit_w, gpus):
        raise HostFailed(f"{host}: rig.power_limit_w: {wrong}", "choose a value that every GPU accepts")


def _limit(host: Host, limit_w: int, text: str) -> None:
    _refuse(host.name, limit_w, read_probe(host).gpus)
    remote.write_file(host, PATH, text)
    start = 'systemctl daemon-reload; systemctl --quiet enable "$1" 2>&1; systemctl restart "$1"'
    restarted = remote.run(host, "sh", "-c", start, "rigup", UNIT, timeout=120)
    held = {gpu.index: gpu.power.limit_w for gpu in read_probe(host).gpus}
    if not restarted.ok or any(watts != limit_w for watts in held.values()):
        shown = ", ".join(f"GPU {index}: {'none' if w is None else f'{w:g} W'}" for index, w in held.items())
        raise HostFailed(
            f"{host.name}: the power limit of {limit_w} W has no effect: {shown or restarted.last_line}",
            f"on the host: journalctl -u {UNIT}",
        )


def _remove(host: Host) -> None:
    """Removes the unit and restores each GPU's default limit."""
    remote.script(
        host, 'systemctl --quiet disable --now "$1" 2>&1 || true; rm -f "$2"; systemctl daemon-reload', UNIT, PATH
    )
    for gpu in read_probe(host).gpus:
        if gpu.power.default_w is not None and gpu.power.limit_w != gpu.power.default_w:
            remote.check_output(host, NVIDIA_SMI, "-i", str(gpu.index), f"--power-limit={gpu.power.default_w:g}")
