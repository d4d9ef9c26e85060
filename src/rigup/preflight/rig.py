"""Compares the declared rig with the probed host, and names every difference with both values. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rigup.catalogue.gpu_names import short_name
from rigup.facts.probe import Probe, ProbedGpu
from rigup.plan import Finding
from rigup.rig import Gpu, HostMemory, Rig
from rigup.units import MIB

# The kernel reserves part of the installed memory, and people round the number.
HOST_MEMORY_TOLERANCE = 0.05
# Driver versions report slightly different sizes for the same card; ECC takes a sixteenth.
GPU_MEMORY_TOLERANCE = 0.02

LOST = "look for the Xid in dmesg, then reboot, reseat the card or replace its power cable"
"""What to do about a card that does not respond."""
_DESCRIBE = "update group_data to match the host, or change the host"


def differences(rig: Rig, probe: Probe) -> tuple[Finding, ...]:
    """Every difference between this host and the rig. Without a driver, GPUs are only counted.

    If the rig has no GPUs, cards without a driver are not a difference.
    """
    gpus = _gpus(rig, probe) if rig.gpus or probe.nvidia.cuda else ()
    return (*_operating_system(rig, probe), *_host_memory(rig, probe), *gpus)


def memory_speed_note(rig: Rig, probe: Probe) -> str:
    """What is to be said where the host's memory is not as fast as declared; "" where it is, or nobody tells.

    The plan still runs there, but its speed is estimated, and its choice made, for other memory.
    """
    found = HostMemory.read(probe.host_memory)
    if rig.host_memory is None or found is None or found == rig.host_memory:
        return ""
    shown = [f"{memory.text} ({memory.bandwidth_gbs:,.0f} GB/s)" for memory in (rig.host_memory, found)]
    return f'warning: declared: host memory of {shown[0]}; found: {shown[1]}: set rig.host_memory to "{found.text}"'


def _operating_system(rig: Rig, probe: Probe) -> Iterator[Finding]:
    if rig.os is not None and rig.os != probe.os:
        yield Finding(rule="host-os", message=f"declared: {rig.os}; found: {probe.os}", hint=_DESCRIBE)


def _host_memory(rig: Rig, probe: Probe) -> Iterator[Finding]:
    found = probe.memory_kib / MIB
    declared = rig.host_memory_gib
    if declared is not None and abs(found - declared) > HOST_MEMORY_TOLERANCE * declared:
        yield Finding(
            rule="host-memory",
            message=f"declared: {declared:g} GiB of host memory; found: {found:.1f} GiB",
            hint=_DESCRIBE,
        )


def _gpus(rig: Rig, probe: Probe) -> Iterator[Finding]:
    lost = [gpu for gpu in probe.gpus if gpu.error]
    if sorted(gpu.name for gpu in rig.gpus) == sorted(gpu.name for gpu in probe.gpus if not gpu.error):
        lost = []  # the rig is described without them
    for gpu in lost:
        yield Finding(
            rule="host-gpu-lost",
            message=f"{described(gpu)} does not respond: {gpu.error}",
            hint=LOST + _rest(rig, probe),
        )
    for gpu in probe.gpus:
        if gpu.mig:
            yield mig_finding(gpu)
    if probe.gpus:
        cards = tuple(gpu for gpu in probe.gpus if gpu in lost or not gpu.error)
        yield from _answering(rig, cards, len(lost), probe)
    elif len(probe.pci_gpus) != len(rig.gpus):
        number = len(probe.pci_gpus)
        yield _counts(rig, f"{number or 'no'} NVIDIA GPU{'' if number == 1 else 's'} on the PCI bus", probe)


def mig_finding(gpu: ProbedGpu) -> Finding:
    """The finding about a GPU that is divided."""
    return Finding(
        rule="host-gpu-mig",
        message=f"{described(gpu)}: declared: a whole GPU; found: MIG is on",
        hint=f"nvidia-smi -i {gpu.index} -mig 0, then reset the GPU or reboot",
    )


def _rest(rig: Rig, probe: Probe) -> str:
    """How to serve on the GPUs that respond; "" if none of the rig's do."""
    rest = Counter(gpu.name for gpu in rig.gpus) & Counter(gpu.name for gpu in probe.gpus if not gpu.error)
    if not rest:
        return ""
    words = ", ".join(f"{count}x {short_name(name)}" for name, count in rest.items())
    return f'; to serve on the rest until then: gpus = "{words}" in group_data, then rigup apply'


def _answering(rig: Rig, cards: tuple[ProbedGpu, ...], lost: int, probe: Probe) -> Iterator[Finding]:
    declared, found = [gpu.name for gpu in rig.gpus], [gpu.name for gpu in cards]
    named = [name for name in found if name]
    if not lost and sorted(declared) != sorted(found):
        yield _counts(rig, _counted(found), probe)
    elif lost and (len(declared) != len(found) or not Counter(named) <= Counter(declared)):
        unnamed = len(found) - len(named)
        yield _counts(rig, _counted(named) + (f" and {unnamed} unidentified" if unnamed else ""), probe)
    by_name = {gpu.name: gpu for gpu in rig.gpus}
    for gpu in cards:
        if gpu.name in by_name:
            yield from _memory(by_name[gpu.name], gpu)


def _memory(declared: Gpu, gpu: ProbedGpu) -> Iterator[Finding]:
    want, have = declared.memory_mib, gpu.memory_total_mib
    if want is None or have is None or abs(want - have) <= GPU_MEMORY_TOLERANCE * want:
        return
    ecc = gpu.ecc and have < want
    hint = "turn ECC off, which takes part of it (nvidia-smi -e 0, then reboot), or add this card to catalogue/gpus/"
    yield Finding(
        rule="host-gpu-memory",
        message=f"{described(gpu)}: declared: {want:,} MiB; found: {have:,} MiB",
        hint=hint if ecc else "add this card to catalogue/gpus/ with its actual memory",
    )


def _counts(rig: Rig, found: str, probe: Probe) -> Finding:
    nvml_error = probe.nvidia.error and f" (NVML: {probe.nvidia.error})"
    return Finding(
        rule="host-gpus",
        message=f"declared: {_counted([gpu.name for gpu in rig.gpus])}; found: {found}{nvml_error}",
        hint="update group_data to match the hardware, or reinstall the missing card",
    )


def described(gpu: ProbedGpu) -> str:
    """A GPU in messages: index, name and UUID, as far as they are known."""
    known = ", ".join(part for part in (gpu.name, gpu.uuid) if part)
    return f"GPU {gpu.index} ({known})" if known else f"GPU {gpu.index}"


def _counted(names: list[str]) -> str:
    return ", ".join(f"{count}x {name}" for name, count in Counter(names).items()) or "no GPU"
