"""What a container or a virtual machine cannot do by itself, and what its own host has to do for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.facts.probe import Probe
from rigup.plan import Finding, Plan
from rigup.preflight.rig import described
from rigup.rig import SUPPORTED_OS

CONTAINER = "lxc"
_CONFIGURATION = "/etc/pve/lxc/ID.conf"
MACHINES = ("amazon", "bhyve", "google", "kvm", "microsoft", "oracle", "parallels", "qemu", "vmware", "xen")
"""Virtual machines, as systemd-detect-virt names them."""


def virtualisation_findings(plans: tuple[Plan, ...], probe: Probe) -> Iterator[Finding]:
    """Why these plans cannot be served here until the machine below it is changed."""
    if probe.virtualisation == "wsl":
        yield Finding(
            rule="host-os",
            message="WSL2 is not supported: Windows drives its GPUs, so there is no driver to install, hold or check",
            hint=f"use a machine, or a virtual machine with the cards passed through, with {' or '.join(SUPPORTED_OS)}",
        )
    elif probe.virtualisation == CONTAINER and plans and plans[0].rig.gpus:
        yield from _container(plans, probe)


def _container(plans: tuple[Plan, ...], probe: Probe) -> Iterator[Finding]:
    """A container runs on the kernel, the driver and the device nodes of its host."""
    driver, loaded, cards = plans[0].driver, probe.nvidia.loaded, len(plans[0].rig.gpus)
    if not loaded:
        version = f" {driver.version}" if driver else ""
        yield Finding(
            rule="host-container",
            message="no NVIDIA driver is loaded, and a container cannot load one",
            hint=f"install driver{version} and proxmox-default-headers on the Proxmox host; then run rigup apply again",
        )
        return
    if driver and loaded != driver.version:
        yield Finding(
            rule="host-container",
            message=f"the container's host runs driver {loaded}, but rigup.lock pins {driver.version}; "
            "a container needs its host's version",
            hint=f"run rigup lock --upgrade driver={loaded}, or install {driver.version} on the Proxmox host",
        )
    numbered = [name for name in probe.nvidia.devices if name.removeprefix("nvidia").isdigit()]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in probe.nvidia.devices]
    if len(numbered) < cards or missing:
        has = (
            f"{len(numbered)} of {cards} cards" if len(numbered) < cards else f"no /dev/{' and no /dev/'.join(missing)}"
        )
        yield Finding(
            rule="host-container",
            message=f"the container's host passes in {has}",
            hint=f"add to {_CONFIGURATION} on the Proxmox host: {'; '.join(device_lines(cards))}; "
            "restart the container",
        )
    limit = plans[0].rig.power_limit_w
    for gpu in probe.gpus:
        if limit is not None and gpu.power.limit_w not in (None, limit):
            yield Finding(
                rule="host-container",
                message=f"{described(gpu)} is limited to {gpu.power.limit_w:g} W, not to the {limit} W of "
                "rig.power_limit_w, and a container cannot change it",
                hint=f"on the Proxmox host, at each boot: nvidia-smi -pl {limit}",
            )
            return


def device_lines(cards: int) -> tuple[str, ...]:
    """Lines of a container's configuration on Proxmox VE that pass in its first cards, with the cgroup's permission."""
    nodes = (*(f"nvidia{index}" for index in range(cards)), "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    return tuple(f"dev{number}: /dev/{node}" for number, node in enumerate(nodes))


def counts_on_patched_driver(plans: tuple[Plan, ...], probe: Probe) -> bool:
    """Whether a service spans cards that only patched kernel modules give P2P."""
    patched = {gpu.index for gpu in probe.gpus if gpu.peers_are_patched}
    over_pcie = [pair for pair in probe.gpu_pairs if pair.peer and pair.nvlink is False]
    return _spans_cards(plans) and any({pair.first, pair.second} <= patched for pair in over_pcie)


def link_notes(plans: tuple[Plan, ...], probe: Probe) -> Iterator[str]:
    """What the machine costs a service on several GPUs: cards that cannot reach each other, small windows."""
    if not _spans_cards(plans) or len(probe.gpus) < 2:
        return
    apart = [pair for pair in probe.gpu_pairs if pair.peer is False and not pair.nvlink]
    if apart and probe.virtualisation in MACHINES:
        yield (
            f"warning: {len(apart)} of {len(probe.gpu_pairs)} pairs of GPUs have no peer access in this virtual "
            f"machine ({probe.virtualisation}), so they exchange data through host memory: docs/systems.md says what "
            "its host can do (IOMMU groups, ACS, GPUDirect cliques)"
        )
    if counts_on_patched_driver(plans, probe):
        yield (
            "warning: the driver is patched: it gives GeForce cards P2P over PCIe, which NVIDIA's does not; apply "
            "checks that data arrive unchanged before it serves across them"
        )
    windows = {gpu.bus: gpu.window_mib for gpu in probe.pci_gpus}
    for gpu in probe.gpus if apart else ():
        window = windows.get(gpu.bus)
        if window and gpu.memory_total_mib and window < gpu.memory_total_mib:
            yield (
                f"warning: {described(gpu)} shows {window:,} of {gpu.memory_total_mib:,} MiB to the bus: resizable BAR "
                "is off, which peer access over PCIe can need: turn it on in the firmware, with Above 4G Decoding"
            )
            return


def _spans_cards(plans: tuple[Plan, ...]) -> bool:
    return any(plan.parallel and plan.parallel.tensor * plan.parallel.pipeline > 1 for plan in plans)
