"""Whether services can start, or start again, on the GPUs and ports of a host, before any of them is stopped. Pure.

`preflight` asks it about plans, for an apply; verbs without a plan ask it about the release that they start.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from rigup import layout
from rigup.facts.host import RUNNING
from rigup.facts.probe import Listener, Probe, ProbedGpu
from rigup.operations.driver.state import next_boot_problem
from rigup.operations.service.gpu_binding import VISIBLE, bind, cards_of
from rigup.plan import BoundPlan, Finding, Plan
from rigup.preflight.rig import GPU_MEMORY_TOLERANCE, described, mig_finding
from rigup.preflight.virtualisation import CONTAINER
from rigup.systemd.release import GPUS_KEY
from rigup.units import list_text

_ANY_PORT_HINT = "stop it, or give the service another port"
_MOST_NAMED = 3


def room_findings(plans: tuple[Plan, ...], probe: Probe, leaving: Collection[str]) -> Iterator[Finding]:
    """Why services of these plans would not start on their GPUs, because of what others do there.

    leaving: units that the run stops before.
    """
    own = _own_units(plans, leaving)
    for plan, gpu, need_mib in _cards_of_plans(plans, probe):
        yield from _mode_findings(gpu, own)
        held = _held_by_others(probe, gpu, own, need_mib)
        if held is not None and _lacks_room(gpu, held, need_mib):
            yield _held_finding(gpu, held, own, f"{plan.service.name} needs {_gib(need_mib)}")


def room_notes(plans: tuple[Plan, ...], probe: Probe, leaving: Collection[str]) -> Iterator[str]:
    """What others do on the GPUs of these plans that leaves enough for them."""
    own = _own_units(plans, leaving)
    for plan, gpu, need_mib in _cards_of_plans(plans, probe):
        held = _held_by_others(probe, gpu, own, need_mib)
        if held is not None and held > _tolerance(gpu) and not _lacks_room(gpu, held, need_mib):
            found = _held_finding(gpu, held, own, f"{plan.service.name} takes {_gib(need_mib)} of the rest")
            yield f"warning: {found.message}"
        if gpu.compute_mode.startswith("exclusive"):
            yield f"warning: {_mode_text(gpu)}; to change it: {_default_mode(gpu)}"


def free_mib(plans: tuple[Plan, ...], plan: Plan, probe: Probe, leaving: Collection[str]) -> tuple[int, ...]:
    """What each card of a plan that answers has free, with what services of these plans hold."""
    own = _own_units(plans, leaving)
    return tuple(
        (gpu.memory_total_mib or 0) - (gpu.memory_reserved_mib or 0) - (_held_by_others(probe, gpu, own, need) or 0)
        for _, gpu, need in _cards_of_plans((plan,), probe)
    )


def restart_findings(
    probe: Probe, service: str, manifest: Mapping[str, Any], unit: str | None = None
) -> Iterator[Finding]:
    """Why a release of this host would not start once its service is stopped.

    unit: whose memory and port are its own, by default the service's.
    """
    own = {unit or layout.unit_name(service)}
    words = dict(pairwise(manifest.get("command") or ()))
    port, listen = words.get("--port", ""), words.get("--host", "127.0.0.1")
    if port.isdigit() and (listener := listening(probe, int(port), listen, own)):
        yield port_finding(service, listener)
    if manifest.get("build") not in probe.built_for:
        return  # it was built without CUDA
    yield from _driver_findings(probe)
    for gpu in _cards_of_release(manifest, probe):
        if gpu.error:
            yield Finding(
                rule="host-gpu-lost",
                message=f"{described(gpu)} does not respond: {gpu.error}",
                hint="look for the Xid in dmesg, then reboot",
            )
            continue
        if gpu.mig:
            yield mig_finding(gpu)
        yield from _mode_findings(gpu, own)
        if (share := _share(words)) is not None and gpu.memory_total_mib:
            need_mib = int(share * gpu.memory_total_mib)
            held = _held_by_others(probe, gpu, own, need_mib)
            if held is not None and _lacks_room(gpu, held, need_mib):
                yield _held_finding(gpu, held, own, f"{service} takes {_gib(need_mib)}")


def listening(probe: Probe, port: int, listen: str, own: Collection[str]) -> Listener | None:
    """The listener that keeps a service from its port, if any; own: units that may hold it."""
    for listener in probe.listeners:
        if listener.port == port and same_place(listener.address, listen) and listener.unit not in own:
            return listener
    return None


def port_finding(service: str, listener: Listener, hint: str = _ANY_PORT_HINT) -> Finding:
    """The finding about a port that is taken."""
    holder = listener.unit or listener.program or "another program"
    message = f"port {listener.port} of service {service} is in use by {holder}"
    return Finding(rule="host-port", message=message, hint=hint)


def _own_units(plans: tuple[Plan, ...], leaving: Collection[str]) -> set[str]:
    return {layout.unit_name(plan.service.name) for plan in plans} | set(leaving)


def _cards_of_plans(plans: tuple[Plan, ...], probe: Probe) -> Iterator[tuple[Plan, ProbedGpu, int]]:
    """Each plan with each of its cards that answers, and MiB that the plan counts on there."""
    offline = tuple(plan.offline if isinstance(plan, BoundPlan) else plan for plan in plans)
    for plan in bind(offline, probe) if probe.gpus else ():
        for row, gpu in cards_of(plan, probe):
            yield plan, gpu, row.weights_mib + row.kv_cache_mib + row.overhead_mib


def _cards_of_release(manifest: Mapping[str, Any], probe: Probe) -> list[ProbedGpu]:
    """The cards that a release uses: those that it names, or all."""
    visible = str((manifest.get("environment") or {}).get(VISIBLE, ""))
    named = {str(uuid) for _, uuid in manifest.get(GPUS_KEY) or ()} | {word for word in visible.split(",") if word}
    return [gpu for gpu in probe.gpus if gpu.uuid in named] if named else list(probe.gpus)


def _share(words: Mapping[str, str]) -> float | None:
    """vLLM's share of each card, which must be free when it starts; None for what takes less if it must."""
    try:
        return float(words["--gpu-memory-utilization"])
    except (KeyError, ValueError):
        return None


def _driver_findings(probe: Probe) -> Iterator[Finding]:
    """Why CUDA programs cannot start at all."""
    nvidia = probe.nvidia
    if not nvidia.loaded:
        yield Finding(
            rule="host-driver", message="no NVIDIA driver is loaded", hint="run rigup apply, or reboot the host"
        )
    elif nvidia.mismatched:
        yield mismatch_finding(probe, "run rigup apply" + ("" if next_boot_problem(probe) else ", or reboot the host"))


def mismatch_finding(probe: Probe, hint: str) -> Finding:
    """The finding about a driver whose library and kernel module differ."""
    nvidia = probe.nvidia
    return Finding(
        rule="host-driver",
        message=f"driver {nvidia.loaded} is loaded but {nvidia.installed} is installed; CUDA programs cannot "
        "start until they match",
        hint=hint,
    )


def _mode_text(gpu: ProbedGpu) -> str:
    return f"{described(gpu)}: compute mode is {gpu.compute_mode}, for one program at a time"


def _default_mode(gpu: ProbedGpu) -> str:
    return f"nvidia-smi -i {gpu.index} -c DEFAULT"


def _mode_findings(gpu: ProbedGpu, own: Collection[str]) -> Iterator[Finding]:
    """Why a card's compute mode keeps programs away from it."""
    if gpu.compute_mode == "prohibited":
        message = f"{described(gpu)}: compute mode is prohibited: no CUDA program can use it"
        yield Finding(rule="host-gpu-mode", message=message, hint=_default_mode(gpu))
    elif gpu.compute_mode.startswith("exclusive") and (others := _others(gpu, own)):
        message = f"{_mode_text(gpu)}, and {others} uses it"
        yield Finding(rule="host-gpu-mode", message=message, hint=f"stop that, or {_default_mode(gpu)}")


def _others(gpu: ProbedGpu, own: Collection[str]) -> str:
    """The processes on a card that belong to none of these units; "" for none."""
    known = [one for one in gpu.processes or () if one.unit is not None and one.unit not in own]
    return list_text([f"{one.unit or one.program or 'a program'} (process {one.pid})" for one in known], _MOST_NAMED)


def _held_by_others(probe: Probe, gpu: ProbedGpu, own: Collection[str], need_mib: int) -> int | None:
    """MiB of a card that neither these units nor the driver hold; None if that cannot be told.

    A process that has died may hold memory, too, which no list of processes has. A service that runs and is not listed
    is taken to hold what it needs.
    """
    if gpu.memory_used_mib is None or gpu.memory_total_mib is None or gpu.memory_of_host:
        return None
    states = {layout.unit_name(name): unit.active for name, unit in probe.units.items()}
    if not any(states.get(unit) in RUNNING for unit in own):
        return gpu.memory_used_mib
    if gpu.processes is None or probe.virtualisation == CONTAINER or any(one.unit is None for one in gpu.processes):
        return None
    mine = [one.memory_mib for one in gpu.processes if one.unit in own]
    if None in mine:
        return None
    listed = bool(mine) or not any(states.get(unit) == "active" for unit in own)
    return max(0, gpu.memory_used_mib - (sum(size or 0 for size in mine) if listed else need_mib))


def _tolerance(gpu: ProbedGpu) -> float:
    """MiB: a driver reports an idle card's memory no more exactly, and a plan counts on no more."""
    return GPU_MEMORY_TOLERANCE * (gpu.memory_total_mib or 0)


def _lacks_room(gpu: ProbedGpu, held: int, need_mib: int) -> bool:
    return held > _tolerance(gpu) and need_mib > (gpu.memory_total_mib or 0) - held + _tolerance(gpu)


def _held_finding(gpu: ProbedGpu, held: int, own: Collection[str], need: str) -> Finding:
    of_rigup = any((one.unit or "").startswith("rigup-") and one.unit not in own for one in gpu.processes or ())
    by = f"by {_others(gpu, own) or 'no process that NVML names'}"
    return Finding(
        rule="host-gpu-held",
        message=f"{described(gpu)}: {_gib(held)} of {_gib(gpu.memory_total_mib or 0)} are held {by}; {need}",
        hint="stop that service with rigup stop, or remove it, if the inventory lacks it, with rigup apply --remove"
        if of_rigup
        else "stop what holds it; memory of a process that has died comes back with a reset of the GPU or a reboot",
    )


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB"


def same_place(there: str, wanted: str) -> bool:
    """Whether two listeners on the same port conflict at these addresses; an invalid address conflicts with any.

    "::" includes IPv4, unless a program asks for IPv6 only, which rigup cannot see here.
    """
    try:
        one, other = _address(there), _address(wanted)
    except ValueError:
        return True
    unspecified = {address for address in (one, other) if address.is_unspecified}
    if any(address.version == 6 for address in unspecified):
        return True
    return one == other or (bool(unspecified) and one.version == other.version)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address as the kernel interprets it. Raises ValueError if it is invalid."""
    found = ipaddress.ip_address("127.0.0.1" if text == "localhost" else text.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found  # ss shows IPv4 on an IPv6 socket in this form
