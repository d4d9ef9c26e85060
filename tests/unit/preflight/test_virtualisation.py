"""Containers, virtual machines and WSL2: what is refused with the lines to write, and what is only said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigup.facts.probe import GpuPair, Nvidia, PciGpu, PowerLimits, Probe, ProbedGpu
from rigup.plan import DriverPlan, Parallel
from rigup.preflight.checks import preflight
from rigup.preflight.virtualisation import link_notes, virtualisation_findings
from rigup.rig import Rig
from tests.unit.preflight.test_checks import CARD, GOOD, NOW, PLAN

VERSION = "580.178.04"
DRIVER = DriverPlan(version=VERSION, branch="580", flavour="open")
TWO = PLAN.model_copy(update={"rig": Rig(gpus=(CARD, CARD)), "driver": DRIVER, "parallel": Parallel(tensor=2)})
BELOW = "on the Proxmox host"
NODES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
CONTAINER = replace(GOOD, virtualisation="lxc", nvidia=Nvidia(loaded=VERSION, devices=NODES))
LINES = (
    "dev0: /dev/nvidia0; dev1: /dev/nvidia1; dev2: /dev/nvidiactl; dev3: /dev/nvidia-uvm; dev4: /dev/nvidia-uvm-tools"
)


def said(probe: Probe) -> list[tuple[str, str]]:
    return [(found.message, found.hint) for found in virtualisation_findings((TWO,), probe)]


@pytest.mark.parametrize("kind", ["none", "", "kvm", "vmware", "systemd-nspawn"])
def test_hardware_and_virtual_machines_are_hosts_like_any_other(kind: str) -> None:
    assert said(replace(GOOD, virtualisation=kind)) == []


def test_wsl_is_refused_with_a_reason() -> None:
    (found,) = virtualisation_findings((), replace(GOOD, virtualisation="wsl"))
    assert (found.rule, found.message, found.hint) == (
        "host-os",
        "WSL2 is not supported: Windows drives its GPUs, so there is no driver to install, hold or check",
        "use a machine, or a virtual machine with the cards passed through, with debian-12 or debian-13 or "
        "ubuntu-22.04 or ubuntu-24.04 or ubuntu-26.04",
    )
    assert found in preflight(replace(GOOD, virtualisation="wsl"), (PLAN,), NOW)


def test_a_container_with_its_hosts_driver_and_devices_is_right() -> None:
    assert said(CONTAINER) == []
    idle = replace(CONTAINER, nvidia=Nvidia())
    assert list(virtualisation_findings((), idle)) == []
    assert list(virtualisation_findings((PLAN,), idle)) == [], "a rig without GPUs needs no driver"


def test_a_container_whose_host_has_no_driver() -> None:
    ((message, hint),) = said(replace(CONTAINER, nvidia=Nvidia()))
    assert message == "no NVIDIA driver is loaded, and a container cannot load one"
    assert hint.startswith(f"install driver {VERSION} and proxmox-default-headers {BELOW}; ")


def test_a_container_whose_host_runs_another_version() -> None:
    assert said(replace(CONTAINER, nvidia=Nvidia(loaded="580.159.03", devices=NODES))) == [
        (
            f"the container's host runs driver 580.159.03, but rigup.lock pins {VERSION}; a container needs its host's "
            "version",
            f"run rigup lock --upgrade driver=580.159.03, or install {VERSION} {BELOW}",
        )
    ]


@pytest.mark.parametrize(
    ("devices", "has"),
    [
        ((), "0 of 2 cards"),
        (("nvidia2", "nvidiactl", "nvidia-uvm"), "1 of 2 cards"),
        (("nvidia2", "nvidia3", "nvidiactl"), "no /dev/nvidia-uvm"),
        (("nvidia2", "nvidia3"), "no /dev/nvidiactl and no /dev/nvidia-uvm"),
    ],
)
def test_missing_devices_are_answered_with_the_lines_for_the_hosts_configuration(
    devices: tuple[str, ...], has: str
) -> None:
    assert said(replace(CONTAINER, nvidia=Nvidia(loaded=VERSION, devices=devices))) == [
        (
            f"the container's host passes in {has}",
            f"add to /etc/pve/lxc/ID.conf {BELOW}: {LINES}; restart the container",
        )
    ]


def test_cards_whose_power_limit_a_container_cannot_change() -> None:
    limited = TWO.model_copy(update={"rig": Rig(gpus=(CARD,), power_limit_w=280), "parallel": Parallel()})
    card = ProbedGpu(CARD.name, memory_total_mib=CARD.memory_mib, power=PowerLimits(limit_w=350))
    (found,) = preflight(replace(CONTAINER, gpus=(card,)), (limited,), NOW)
    assert (found.message, found.hint) == (
        "GPU 0 (NVIDIA GeForce RTX 3090) is limited to 350 W, not to the 280 W of rig.power_limit_w, and a container "
        "cannot change it",
        f"{BELOW}, at each boot: nvidia-smi -pl 280",
    )


CARDS = tuple(
    ProbedGpu(CARD.name, index=n, uuid=f"GPU-{n}", bus=f"0000:0{n}:00.0", memory_total_mib=24576) for n in (0, 1)
)
MACHINE = replace(
    GOOD,
    virtualisation="kvm",
    gpus=CARDS,
    gpu_pairs=(GpuPair(0, 1, "node", peer=False, nvlink=False),),
    pci_gpus=tuple(PciGpu(card.bus, window_mib=256) for card in CARDS),
)


def test_what_costs_in_a_virtual_machine_is_said_once_each() -> None:
    peers, window = link_notes((TWO,), MACHINE)
    assert peers.startswith("warning: 1 of 1 pairs of GPUs have no peer access in this virtual machine (kvm)")
    assert "GPU 0 (NVIDIA GeForce RTX 3090, GPU-0) shows 256 of 24,576 MiB to the bus" in window


@pytest.mark.parametrize(
    ("card", "nvlink", "named"),
    [
        ({}, False, True),
        ({}, True, False),  # two RTX 3090 with a bridge
        ({"compute_capability": "6.1"}, False, False),  # NVIDIA's driver gives older cards P2P
        ({"name": "NVIDIA L40S", "compute_capability": "8.9"}, False, False),
    ],
)
def test_a_patched_driver_is_named(card: dict[str, Any], nvlink: bool, named: bool) -> None:
    cards = tuple(replace(one, **{"compute_capability": "8.6", **card}) for one in CARDS)
    pairs = (GpuPair(0, 1, "node", peer=True, nvlink=nvlink),)
    notes = list(link_notes((TWO,), replace(GOOD, gpus=cards, gpu_pairs=pairs)))
    assert [note.partition("it gives")[0] for note in notes] == ["warning: the driver is patched: "] * named


def test_a_container_is_not_called_a_virtual_machine() -> None:
    assert not any("virtual machine" in note for note in link_notes((TWO,), replace(MACHINE, virtualisation="lxc")))


def test_nothing_is_said_where_it_costs_nothing() -> None:
    one = TWO.model_copy(update={"parallel": Parallel()})
    linked = (GpuPair(0, 1, "node", peer=True),)
    assert list(link_notes((one,), MACHINE)) == []
    assert list(link_notes((TWO,), replace(MACHINE, gpu_pairs=linked))) == []
    large = tuple(PciGpu(card.bus, window_mib=32768) for card in CARDS)
    assert len(list(link_notes((TWO,), replace(MACHINE, pci_gpus=large)))) == 1
    assert list(link_notes((TWO,), replace(MACHINE, virtualisation="none", pci_gpus=large))) == []
