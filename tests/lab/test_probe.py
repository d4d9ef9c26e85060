"""A machine with simulated GPUs, probed and described by rigup: bare, with a driver, and in each kind of trouble.

What stands for GPUs and driver is the lab's (docs/lab.md); the probe's own program, nvidia-ml-py and apt are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.facts.probe import Probe, parse
from rigup.facts.probe_script import script
from rigup.lab.gpus.simulated import SimulatedGpus
from rigup.lab.machine import Machine
from rigup.lab.packages.nvidia_repository import cuda_repository
from tests.lab.fleet_fixtures import made_lab

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "new hosts")]

RIG = "RTX PRO 6000 Blackwell Workstation Edition, 2x RTX 3090"
NAMES = ["NVIDIA RTX PRO 6000 Blackwell Workstation Edition", *["NVIDIA GeForce RTX 3090"] * 2]
DRIVER, NEXT = "580.178.04", "590.48.01"
PACKAGES = (
    "nvidia-open nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-kernel-support firmware-nvidia-gsp "
    "libnvidia-ml1 libcuda1 nvidia-persistenced"
)


@pytest.fixture(scope="module")
def bare(labs_can_run: None) -> Iterator[Machine]:
    """A machine with three GPUs that nothing drives."""
    with made_lab(f"p{os.getpid()}", rig=RIG) as made:
        yield made.machines[0]


@pytest.fixture(scope="module")
def driven(bare: Machine) -> Machine:
    """The same with a driver, as a person would install it."""
    url = cuda_repository(bare.record.suite).url
    tell(bare, f"curl -sSfO {url}cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_1.1-1_all.deb && apt-get update -q")
    install(bare, f"linux-headers-{os.uname().release} " + versions(DRIVER))
    bare.reboot()
    return bare


@pytest.fixture
def gpus(driven: Machine) -> Iterator[SimulatedGpus]:
    """Its GPUs, to be driven; well again after the test."""
    gpus = SimulatedGpus(driven)
    yield gpus
    for index in range(3):
        gpus.restore(index)


def tell(machine: Machine, command: str) -> str:
    done = machine.ssh(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def versions(driver: str) -> str:
    return " ".join(f"{package}={driver}-1" for package in PACKAGES.split())


def install(machine: Machine, packages: str) -> None:
    tell(machine, f"DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends {packages}")


def probe(machine: Machine) -> Probe:
    done = machine.ssh("sh -s", input=script())
    assert done.returncode == 0, done.stderr
    return parse(done.stdout.splitlines())


def init(machine: Machine, fleet: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return rigup(fleet, "init", machine.name, "--ssh-config", str(machine.lab.ssh_config), *words)


def rigup(fleet: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rigup", *words], cwd=fleet, capture_output=True, text=True, timeout=120
    )


def test_gpus_that_nothing_drives_are_counted(bare: Machine) -> None:
    found = probe(bare)
    assert [gpu.bus for gpu in found.pci_gpus] == ["0000:01:00.0", "0000:21:00.0", "0000:41:00.0"]
    assert (found.nvidia.loaded, found.nvidia.installed, found.nvidia.flavour, found.gpus) == ("", "", "", ())
    assert (found.init, found.os) == ("systemd", "debian-12")


def test_init_wants_to_be_told_what_they_are(bare: Machine, tmp_path: Path) -> None:
    refused = init(bare, tmp_path)
    assert refused.returncode == 1
    assert " 3 NVIDIA GPUs " in refused.stderr and '--gpus "3x ' in refused.stderr
    assert list(tmp_path.iterdir()) == []
    wrong = init(bare, tmp_path, "--gpus", "4x RTX 3090")
    assert (wrong.returncode, "found: 3 NVIDIA GPUs" in wrong.stderr) == (1, True)
    told = init(bare, tmp_path, "--gpus", RIG, "--group", "mixed")
    assert told.returncode == 0, told.stderr
    assert rigup(tmp_path, "plan").returncode == 0


def test_everything_that_the_driver_tells(driven: Machine) -> None:
    found = probe(driven)
    assert (found.nvidia.loaded, found.nvidia.installed, found.nvidia.flavour, found.nvidia.cuda) == (
        DRIVER,
        DRIVER,
        "open",
        "13.0",
    )
    assert found.nvidia.packages["nvidia-open"] == f"{DRIVER}-1"
    assert not found.nvidia.error and not found.nvidia.mismatched
    assert [gpu.name for gpu in found.gpus] == NAMES
    first, second, _ = found.gpus
    assert (first.memory_total_mib, second.memory_total_mib) == (97887, 24576)
    assert (first.compute_capability, second.compute_capability) == ("12.0", "8.6")
    assert (first.power.limit_w, first.power.default_w, first.power.least_w, first.power.most_w) == (600, 600, 150, 600)
    assert (first.pcie.generation, first.pcie.most_generation, first.pcie.most_width) == (1, 5, 16)
    assert (second.ecc, second.mig, second.error) == (None, None, "")
    assert {(pair.first, pair.second) for pair in found.gpu_pairs} == {(0, 1), (0, 2), (1, 2)}
    assert all(gpu.uuid.startswith("GPU-") and gpu.temperature_c for gpu in found.gpus)


def test_nothing_is_left_on_the_host(driven: Machine) -> None:
    probe(driven)
    assert tell(driven, "find / -xdev -name '*pynvml*' -o -xdev -name 'probe_gpus*'") == ""


def test_init_writes_what_plans(driven: Machine, tmp_path: Path) -> None:
    done = init(driven, tmp_path, "--json", "--group", "mixed")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert [gpu["name"] for gpu in said["probe"]["gpus"]] == NAMES
    assert [plan["verdict"] for plan in said["plans"]] == ["ok"]
    written = [str(Path(file["path"]).with_suffix("")) for file in said["files"]]
    assert written == [".gitignore", "group_data/mixed", "inventories/mixed"]
    assert "secrets/\n" in (tmp_path / ".gitignore").read_text()
    again = init(driven, tmp_path)
    assert (again.returncode, " group mixed" in again.stderr) == (2, True)


def test_a_hot_card_and_a_lower_limit(driven: Machine, gpus: SimulatedGpus) -> None:
    gpus.throttle(1)
    gpus.set(2, power_limit_mw=200000)
    found = probe(driven)
    assert found.gpus[1].throttled == ("hardware slowdown", "hardware thermal")
    assert found.gpus[1].temperature_c == 92
    assert found.gpus[2].power.limit_w == 200
    gpus.unset(2, "power_limit_mw")


def test_a_lost_card_stops_everything_by_its_name(driven: Machine, gpus: SimulatedGpus, tmp_path: Path) -> None:
    uuid = probe(driven).gpus[2].uuid
    gpus.lose(2)
    found = probe(driven)
    assert [gpu.error for gpu in found.gpus] == ["", "", "GPU is lost"]
    assert found.gpus[2].uuid == uuid
    refused = init(driven, tmp_path)
    assert refused.returncode == 1
    assert f"GPU 2 ({NAMES[2]}, {uuid}) " in refused.stderr and ": GPU is lost" in refused.stderr


def test_a_card_whose_driver_is_stuck_is_left_behind(driven: Machine, gpus: SimulatedGpus) -> None:
    uuid = probe(driven).gpus[1].uuid
    gpus.hang(1)
    found = probe(driven)
    assert [bool(gpu.error) for gpu in found.gpus] == [False, True, False]
    assert " 10 s" in found.gpus[1].error
    assert found.gpus[1].uuid == uuid
    assert [(pair.first, pair.second) for pair in found.gpu_pairs] == [(0, 2)]


@pytest.mark.parametrize(
    ("rig", "said"),
    [
        ({"gpus": "4x RTX 3090"}, f"declared: 4x {NAMES[1]}; found: 1x {NAMES[0]}, 2x {NAMES[1]}"),
        ({"gpus": RIG.split(", "), "host_memory_gib": 4096}, "declared: 4096 GiB"),
        ({"gpus": RIG.split(", "), "os": "debian-13"}, "declared: debian-13; found: debian-12"),
    ],
    ids=["gpus", "memory", "os"],
)
def test_a_lie_in_the_rig_stops_an_apply(driven: Machine, tmp_path: Path, rig: dict[str, Any], said: str) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "inventories").mkdir()
    services = {"chat": {"model": "SmolLM2-135M-Instruct"}}
    (tmp_path / "group_data/boxes.py").write_text(f"rig = {rig!r}\nservices = {services!r}\n")
    (tmp_path / "inventories/boxes.py").write_text(f"boxes = {[driven.inventory]!r}\n")
    done = rigup(tmp_path, "apply", "--yes", "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    errors = json.loads(done.stdout)["hosts"][0]["errors"]
    assert any(said in error["message"] for error in errors), errors


def test_a_library_newer_than_the_module(driven: Machine) -> None:
    install(driven, versions(NEXT))
    found = probe(driven)
    assert (found.nvidia.loaded, found.nvidia.installed, found.nvidia.mismatched) == (DRIVER, NEXT, True)
    assert "mismatch" in found.nvidia.error
    assert [gpu.name for gpu in found.gpus] == NAMES
    driven.reboot()
    found = probe(driven)
    assert (found.nvidia.loaded, found.nvidia.mismatched, len(found.gpus)) == (NEXT, False, 3)


def test_a_gpu_without_memory_of_its_own(driven: Machine) -> None:
    SimulatedGpus(driven).exchange("GB10")
    driven.reboot()
    found = probe(driven)
    (gpu,) = found.gpus
    assert (gpu.name, gpu.memory_of_host, gpu.memory_used_mib) == ("NVIDIA GB10", True, None)
    assert gpu.memory_total_mib == found.memory_kib // 1024
    assert (gpu.power.limit_w, gpu.nvlinks, gpu.ecc) == (None, None, None)
