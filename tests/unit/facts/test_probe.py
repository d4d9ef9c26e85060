"""The probe's lines become a Probe, whatever a login shell prints in between."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.facts.probe import (
    BuiltFor,
    Disk,
    FabricManager,
    GpuPair,
    Listener,
    NumaNode,
    PcieLink,
    PciGpu,
    PowerLimits,
    ProbedGpu,
    UnattendedUpgrades,
    UnitState,
    parse,
)
from rigup.facts.probe_script import script

LINES = """
Welcome to this box! You have mail.
os debian-12
os_name Debian GNU/Linux 12 (bookworm)
arch x86_64
clock 1800000000
memory_kib 65536000
disk /opt yes 4000 1000 /
disk nonsense
numa 0 32768000 0-7,16-23
numa 1 32768000
port 8000 127.0.0.1 rigup-chat.service|llama-server
port 22 [::] ssh.service|sshd
port 9000 * |python3
kernel_installed 6.1.0-9-amd64
kernel_installed 6.1.0-40-amd64
kernel_package linux-image-amd64
kernel_module 6.1.0-9-amd64 580.95.05
headers 6.1.0-9-amd64
secure_boot 1
package ii |nvidia-open|580.95.05-1|NVIDIA <cudatools@nvidia.com>
package hi |nvidia-fabricmanager|580.95.05-1|NVIDIA <cudatools@nvidia.com>
package iF |nvidia-kernel-open-dkms|580.95.05-1|NVIDIA <cudatools@nvidia.com>
unfinished nvidia-kernel-open-dkms
unfinished linux-image-6.1.0-99-amd64
package rc |cuda-keyring|1.1-1|NVIDIA <cudatools@nvidia.com>
package ii |unattended-upgrades|2.9.1|NVIDIA <cudatools@nvidia.com>
package hi |linux-image-amd64|6.1.1|NVIDIA <cudatools@nvidia.com>
apt APT::Periodic::Unattended-Upgrade "1";
apt Unattended-Upgrade::Package-Blacklist "";
apt Unattended-Upgrade::Package-Blacklist:: "nvidia-.*";
apt Unattended-Upgrade::Package-Blacklist:: "cuda-.*";
build llama.cpp-b11434-abc
weights /var/lib/rigup/weights/o/m/aaaa
incoming /var/lib/rigup/weights/o/m/bbbb 2048
service chat 3
systemd NRestarts=0
systemd Id=nvidia-fabricmanager.service
systemd LoadState=not-found
systemd
systemd NRestarts=2
systemd Id=rigup-chat.service
systemd ActiveState=active
systemd DropInPaths=
systemd
release chat {"build": "llama.cpp-b11434-abc"}
""".splitlines()

LOADED = "driver NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)  Tue Sep 23 2025"
PROPRIETARY = "driver NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025"
BUS = """
pci 0000:01:00.0 0x030000 0x2204 0
pci 0000:01:00.1 0x040300 0x1aef 0
pci 0000:41:00.0 0x030000 0x2204 1
""".strip().splitlines()
CARDS = [
    "card 0000:01:00.0 GPU-aaaa NVIDIA GeForce RTX 3090",
    "card 0000:41:00.0 GPU-bbbb NVIDIA GeForce RTX 3090",
]
ANSWER: dict[str, Any] = {
    "gpu": 0,
    "name": "NVIDIA GeForce RTX 3090",
    "uuid": "GPU-aaaa",
    "bus": "00000000:01:00.0",
    "memory_total_mib": 24576,
    "memory_used_mib": 123,
    "memory_reserved_mib": 300,
    "compute_capability": "8.6",
    "temperature_c": 41,
    "pcie_generation": 1,
    "pcie_generation_most": 4,
    "pcie_width": 16,
    "pcie_width_most": 16,
    "power_limit_w": 280.0,
    "power_default_w": 350.0,
    "power_least_w": 100.0,
    "power_most_w": 350.0,
    "persistence": True,
    "ecc": None,
    "mig": None,
    "throttled": ["power cap"],
    "nvlinks": 4,
    "fabric": None,
}


def nvml(**said: Any) -> str:
    return f"nvml {said!r}"


def test_the_host() -> None:
    probe = parse(LINES)
    assert (probe.os, probe.architecture, probe.clock) == ("debian-12", "x86_64", 1800000000)
    assert probe.disks == (Disk("/opt", True, 1024000, 4096000, "/"),)
    assert probe.numa_nodes == (NumaNode(0, "0-7,16-23", 32768000), NumaNode(1, "", 32768000))
    assert probe.listeners == (
        Listener(8000, "127.0.0.1", "rigup-chat.service", "llama-server"),
        Listener(22, "::", "ssh.service", "sshd"),
        Listener(9000, "*", "", "python3"),
    )
    assert probe.incoming == {"/var/lib/rigup/weights/o/m/bbbb": 2048 * 1024}
    assert probe.current == {"chat": "3"}
    assert probe.units == {"chat": UnitState("active", "", 2)}
    assert probe.releases == {"chat": {"build": "llama.cpp-b11434-abc"}}


DEBIAN = "Debian NVIDIA Maintainers <pkg-nvidia-devel@lists.alioth.debian.org>"
UBUNTU = "Ubuntu Kernel Team <kernel-team@lists.ubuntu.com>"


def test_packages_that_the_distribution_built() -> None:
    lines = [
        f"package ii |libnvidia-ml1|550.163.01-2|{DEBIAN}",
        f"package iF |nvidia-open-kernel-dkms|550.163.01-2|{DEBIAN}",
        f"package rc |nvidia-alternative|550.163.01-2|{DEBIAN}",
        f"package ii |unattended-upgrades|2.9.1|{DEBIAN}",
        f"package ii |linux-modules-nvidia-580-open-generic|6.8.0-60.63+1|{UBUNTU}",
        "package ii |nvidia-modprobe|580.95.05-1|somebody <debian.org@evil.example>",
    ]
    nvidia = parse(lines).nvidia
    of_distribution = ("libnvidia-ml1", "linux-modules-nvidia-580-open-generic", "nvidia-open-kernel-dkms")
    assert nvidia.of_distribution == of_distribution
    assert nvidia.unconfigured == {"nvidia-open-kernel-dkms": "550.163.01-2"}


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ("image DGX OS 7.2.1", "DGX OS 7.2.1"),
        ("package ii |lambda-stack-cuda|0.1.15~22.04.2|Lambda <software@lambdal.com>", "Lambda Stack"),
        ("package rc |lambda-stack-cuda|0.1.15~22.04.2|Lambda <software@lambdal.com>", ""),
    ],
)
def test_a_data_centre_image_has_a_name(line: str, image: str) -> None:
    assert parse([line]).nvidia.image == image


def test_the_uninstaller_of_a_run_file() -> None:
    assert parse(["installer yes"]).nvidia.installer
    assert not parse([]).nvidia.installer


def test_kernels_packages_and_what_apt_may_do() -> None:
    probe = parse(LINES)
    assert probe.kernels == ("6.1.0-9-amd64", "6.1.0-40-amd64")
    assert probe.headers == ("6.1.0-9-amd64",)
    assert probe.kernel_modules == {"6.1.0-9-amd64": "580.95.05"}
    assert probe.secure_boot == "on"
    assert probe.held == ("linux-image-amd64", "nvidia-fabricmanager")
    assert probe.unattended_upgrades == UnattendedUpgrades(True, True, ("nvidia-.*", "cuda-.*"))
    assert probe.nvidia.packages == {"nvidia-open": "580.95.05-1", "nvidia-fabricmanager": "580.95.05-1"}
    assert probe.nvidia.unconfigured == {"nvidia-kernel-open-dkms": "580.95.05-1"}
    assert probe.unfinished == ("nvidia-kernel-open-dkms", "linux-image-6.1.0-99-amd64")
    assert probe.nvidia.fabric_manager.version == "580.95.05-1"


@pytest.mark.parametrize(("text", "meaning"), [("0", "off"), ("", "off"), ("none", "none")])
def test_secure_boot(text: str, meaning: str) -> None:
    assert parse([f"secure_boot {text}"]).secure_boot == meaning


def test_a_host_without_any_gpu() -> None:
    probe = parse(LINES)
    assert (probe.nvidia.loaded, probe.gpus, probe.pci_gpus) == ("", (), ())
    assert not probe.nvidia.mismatched


def test_gpus_that_answer() -> None:
    second = ANSWER | {"gpu": 1, "uuid": "GPU-bbbb", "bus": "00000000:41:00.0"}
    pair = nvml(pair=[0, 1], path="system", peer=True, nvlink=False)
    system = nvml(system={"driver": "580.95.05", "cuda": "13.0"})
    probe = parse(
        [LOADED, "library libnvidia-ml.so.580.95.05", *BUS, *CARDS, system, nvml(**ANSWER), nvml(**second), pair]
    )
    assert probe.nvidia.loaded == probe.nvidia.installed == probe.nvidia.loaded == "580.95.05"
    assert (probe.nvidia.flavour, probe.nvidia.cuda, probe.nvidia.error) == ("open", "13.0", "")
    assert probe.gpus[0] == ProbedGpu(
        "NVIDIA GeForce RTX 3090",
        123,
        24576,
        41,
        index=0,
        uuid="GPU-aaaa",
        bus="0000:01:00.0",
        memory_reserved_mib=300,
        compute_capability="8.6",
        pcie=PcieLink(1, 16, 4, 16),
        power=PowerLimits(280.0, 350.0, 100.0, 350.0),
        persistence=True,
        throttled=("power cap",),
        nvlinks=4,
        numa_node=0,
    )
    assert [gpu.numa_node for gpu in probe.gpus] == [0, 1]
    assert probe.gpu_pairs == (GpuPair(0, 1, "system", True, False),)


def test_the_flavour_of_the_module() -> None:
    assert parse([PROPRIETARY]).nvidia.flavour == "proprietary"
    assert parse([PROPRIETARY]).nvidia.loaded == "580.95.05"


def test_no_driver_leaves_what_the_bus_shows() -> None:
    probe = parse(["nouveau yes", *BUS])
    assert probe.pci_gpus == (PciGpu("0000:01:00.0", "0x2204", 0), PciGpu("0000:41:00.0", "0x2204", 1))
    assert (probe.gpus, probe.nvidia.loaded, probe.nvidia.nouveau) == ((), "", True)


def test_a_library_that_is_newer_than_the_module() -> None:
    error = nvml(error="Driver/library version mismatch")
    probe = parse([LOADED, "library libnvidia-ml.so.590.48.01", *BUS, *CARDS, error])
    assert probe.nvidia.mismatched
    assert (probe.nvidia.loaded, probe.nvidia.installed) == ("580.95.05", "590.48.01")
    assert probe.nvidia.error == "Driver/library version mismatch"
    assert [(gpu.name, gpu.uuid, gpu.memory_total_mib) for gpu in probe.gpus] == [
        ("NVIDIA GeForce RTX 3090", "GPU-aaaa", None),
        ("NVIDIA GeForce RTX 3090", "GPU-bbbb", None),
    ]


def test_a_card_that_fell_off_the_bus_is_named_from_the_kernel() -> None:
    probe = parse([LOADED, *BUS, *CARDS, nvml(**ANSWER), nvml(gpu=1, error="GPU is lost")])
    assert [gpu.error for gpu in probe.gpus] == ["", "GPU is lost"]
    assert (probe.gpus[1].index, probe.gpus[1].uuid, probe.gpus[1].bus) == (1, "GPU-bbbb", "0000:41:00.0")


def test_a_gpu_without_memory_of_its_own_has_the_hosts() -> None:
    spark = ANSWER | {"name": "NVIDIA GB10", "memory_total_mib": None, "memory_used_mib": None}
    gpu = parse(["memory_kib 125829120", nvml(**spark)]).gpus[0]
    assert (gpu.memory_total_mib, gpu.memory_of_host, gpu.memory_used_mib) == (122880, True, None)


def test_nvswitches_and_their_manager() -> None:
    bridges = [f"pci 0000:0{index}:00.0 0x068000 0x22a3 0" for index in range(4)]
    assert parse(bridges).nvidia.nvswitches == 4
    unit = shown("nvidia-fabricmanager", LoadState="loaded", ActiveState="failed", UnitFileState="enabled")
    probe = parse([*bridges, "nvswitch 0000:00:00.0", "package ii |nvidia-fabricmanager-580|580.1-1|", *unit])
    assert probe.nvidia.nvswitches == 1
    assert probe.nvidia.fabric_manager == FabricManager("580.1-1", "failed", "enabled")
    missing = shown("nvidia-fabricmanager", LoadState="not-found", ActiveState="inactive")
    assert parse(missing).nvidia.fabric_manager == FabricManager()


def shown(unit: str, **properties: str) -> list[str]:
    """The probe's lines of a unit, in an order like systemd's: the name comes somewhere among them."""
    first, *rest = (f"systemd {key}={value}" for key, value in properties.items())
    return [first, f"systemd Id={unit}.service", *rest, "systemd"]


def test_all_of_it_is_plain_json() -> None:
    probe = parse([*LINES, LOADED, *BUS, nvml(**ANSWER)])
    text = json.loads(json.dumps(probe.as_json()))
    assert text["gpus"][0]["power"] == {"limit_w": 280.0, "default_w": 350.0, "least_w": 100.0, "most_w": 350.0}
    assert text["nvidia"]["loaded"] == "580.95.05"


def run_script(**environment: str) -> list[str]:
    done = subprocess.run(
        ["sh", "-s"], input=script(), capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_script_runs_in_a_plain_shell_and_says_what_this_machine_is() -> None:
    probe = parse(run_script())
    assert probe.cpus >= 1
    assert probe.memory_kib > 0
    assert {disk.folder for disk in probe.disks} == {"/opt", "/var/lib", "/var/cache", "/etc", "/tmp"}
    assert all(0 < disk.free_bytes <= disk.size_bytes for disk in probe.disks)


def test_what_a_build_was_made_for_is_read_from_its_manifest(tmp_path: Path) -> None:
    made = {"made_for": {"cuda": "13.0.2", "compute_capabilities": ["8.6", "12.0"]}}
    manifests = {
        "for-gpus": {"build": made, "built_by": "gpu1.lan"},
        "for-cpus": {"build": {"made_for": None}},
        "of-old": {"build": {}},
    }
    for name, manifest in manifests.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True))
    text = script().replace(layout.BUILDS, str(tmp_path))
    done = subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, timeout=60)
    probe = parse(done.stdout.splitlines())
    assert set(probe.builds) == set(manifests)
    assert probe.built_for == {"for-gpus": BuiltFor("13.0.2", ("8.6", "12.0"))}
    assert probe.built_by == {"for-gpus": "gpu1.lan"}


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("wheels/torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl", True),
        ("wheels/uv-0.13.9-py3-none-manylinux_2_28_x86_64.whl", False),
        ("wheels/smg-1.8.0-py3-none-manylinux_2_28_x86_64.whl", False),
        ("wheels/torch-2.14.0-cp312-cp312-manylinux_2_28_x86_64.whl.part", False),
        ("uv/archive-v0/Vn9QhLmVSAyhAUqX", True),
        ("uv/wheels-v8", False),
        ("", False),
    ],
)
def test_wheels_of_engines_that_the_host_has_kept(tmp_path: Path, path: str, kept: bool) -> None:
    (tmp_path / path).mkdir(parents=True, exist_ok=True)
    text = script().replace(layout.PACKAGES, str(tmp_path))
    done = subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, timeout=60)
    assert parse(done.stdout.splitlines()).kept_wheels is kept


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder whose ldconfig knows a management library that no program can load."""
    tool = tmp_path / "ldconfig"
    target = tmp_path / "libnvidia-ml.so.580.95.05"
    target.touch()
    tool.write_text(f"#!/bin/sh\necho '\tlibnvidia-ml.so.1 (libc6,x86-64) => {target}'\n")
    tool.chmod(0o755)
    return tmp_path


def test_nvml_is_asked_where_there_is_a_library(library: Path) -> None:
    probe = parse(run_script(PATH=f"{library}:{os.environ['PATH']}"))
    assert probe.nvidia.installed == "580.95.05"
    assert probe.nvidia.error == "NVML Shared Library Not Found"


@pytest.mark.parametrize(
    ("module", "listed", "found"),
    [(True, "", True), (False, "nouveau 2555904 0 - Live 0x0\n", True), (False, "nouveau_fan 4096 0\n", False)],
)
def test_nouveau_is_known_by_its_module_and_by_the_list_of_modules(
    tmp_path: Path, module: bool, listed: str, found: bool
) -> None:
    listing, folder = tmp_path / "modules", tmp_path / "nouveau"
    listing.write_text(listed)
    if module:
        folder.mkdir()
    text = script().replace("/sys/module/nouveau", str(folder)).replace("/proc/modules", str(listing))
    done = subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, timeout=60)
    assert parse(done.stdout.splitlines()).nvidia.nouveau is found


def test_a_host_without_python_says_so(library: Path) -> None:
    for tool in ("sh", "sed", "cat", "uname", "date", "basename", "readlink", "head", "timeout", "nproc", "grep", "tr"):
        found = next(Path(f) / tool for f in ("/usr/bin", "/bin", "/usr/sbin") if (Path(f) / tool).exists())
        (library / tool).symlink_to(found)
    without_sbin = script().replace('PATH="$PATH:/usr/sbin:/sbin"', f'PATH="{library}"')
    done = subprocess.run(["sh", "-s"], input=without_sbin, capture_output=True, text=True, timeout=60)
    probe = parse(done.stdout.splitlines())
    assert probe.nvidia.error == "NVML could not be asked: there is no python3"
    assert probe.memory_kib > 0


def test_the_kind_of_machine_and_what_brings_its_kernels() -> None:
    probe = parse(
        [
            "os linuxmint-22.3",
            "os_like ubuntu debian",
            "virtualisation lxc",
            "kernel_package linux-image-generic-hwe-24.04",
            "kernel_package proxmox-default-kernel",
        ]
    )
    assert (probe.os_like, probe.virtualisation) == ("ubuntu debian", "lxc")
    assert probe.kernel_packages == ("linux-image-generic-hwe-24.04", "proxmox-default-kernel")


def test_how_much_of_a_card_the_bus_shows_and_which_nodes_are_there() -> None:
    probe = parse(
        [
            f"pci 0000:01:00.0 0x030000 0x2204 0 {32 * 2**30}",
            "pci 0000:02:00.0 0x030000 0x2204 0 268435456",
            "pci 0000:03:00.0 0x030000 0x2204 -1 0",
            "pci 0000:04:00.0 0x030000 0x2204 -1",
            "nvidia_device nvidia0",
            "nvidia_device nvidiactl",
        ]
    )
    assert [gpu.window_mib for gpu in probe.pci_gpus] == [32768, 256, None, None]
    assert probe.nvidia.devices == ("nvidia0", "nvidiactl")


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("ii |linux-image-generic-hwe-24.04|6.14", "kernel_package linux-image-generic-hwe-24.04"),
        (
            "hi |linux-image-cloud-amd64|6.1",
            "kernel_package linux-image-cloud-amd64\npackage hi |linux-image-cloud-amd64|6.1",
        ),
        ("ii |proxmox-kernel-6.14|6.14.11", "kernel_package proxmox-kernel-6.14"),
        ("ii |linux-image-6.8.0-45-generic|6.8", ""),
        ("ii |proxmox-kernel-6.14.11-4-pve|6.14", ""),
        ("rc |linux-image-amd64|6.1", ""),
        ("iU |nvidia-open|580|cudatools", "unfinished nvidia-open\npackage iU |nvidia-open|580|cudatools"),
        ("iHR|zfs-dkms|2.3|zfs", "unfinished zfs-dkms"),
        ("ii |libnccl2|2.29|NVIDIA <nccl@nvidia.com>", ""),
    ],
)
def test_the_packages_that_the_probe_passes_on(tmp_path: Path, package: str, line: str) -> None:
    """Runs the script's own filter on one line of dpkg-query."""
    text = script()
    start = text.index("| sed -nE \\\n-e 'h;") + 2
    filtering = text[start : text.index("\n[ -e /usr/bin/nvidia-uninstall ]")]
    done = subprocess.run(["sh", "-c", filtering], input=f"{package}\n", capture_output=True, text=True, check=True)
    assert done.stdout.strip() == line
