"""Simulated GPUs, on booted machines: the unmodified nvidia-ml-py sees them, apt installs their driver, faults show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from rigup.errors import MissingTool
from rigup.lab.gpus.description import describe
from rigup.lab.gpus.simulated import SimulatedGpus
from rigup.lab.lab import Lab
from rigup.lab.machine import Machine
from rigup.lab.packages import nvidia_repository
from tests.lab.fleet_fixtures import made_lab

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("lab", "src/rigup/programs/nvml.py")]

QUAD_3090 = "4x RTX 3090"
MIXED = "RTX PRO 6000 Blackwell Workstation Edition, 2x RTX 3090"
OLD, PINNED, NEXT = "580.95.05-1", "580.178.04-1", "590.48.01-1"
ONLY_LAB = "-o Dir::Etc::SourceList=/dev/null"  # without Debian's own lists
KERNEL = os.uname().release


def run(machine: Machine, command: str, user: str = "root", fails: bool = False) -> str:
    """What a command on the machine prints, both streams; the test fails where it does not end as expected."""
    done = machine.ssh(command, user=user)
    output = done.stdout + done.stderr
    assert bool(done.returncode) == fails, f"{command}: {done.returncode}\n{output}"
    return output


def add_repository(machine: Machine) -> None:
    """As NVIDIA's guide has it: the keyring package brings the key and the source."""
    url = nvidia_repository.cuda_repository(machine.record.suite).url
    run(machine, f"curl -sSfO {url}cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_1.1-1_all.deb")
    run(machine, "apt-get update -q")
    give_reader(machine)


def install(machine: Machine, *packages: str) -> str:
    quiet = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends --allow-downgrades"
    return run(machine, f"{quiet} {' '.join(packages)}")


def driver(version: str) -> tuple[str, ...]:
    """The packages of a driver, all of one version."""
    names = "nvidia-open nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-kernel-support firmware-nvidia-gsp"
    return tuple(f"{name}={version}" for name in f"{names} libnvidia-ml1 libcuda1 nvidia-persistenced".split())


def give_reader(machine: Machine) -> None:
    """Puts the unmodified nvidia-ml-py on the machine, and what reads with it."""
    run(machine, "mkdir -p /opt/nvml")
    for file in (Path(pynvml.__file__), Path(__file__).with_name("read_nvml.py")):
        machine.ssh(f"cat >/opt/nvml/{file.name}", input=file.read_text(), check=True)


def nvml(machine: Machine, *arguments: int, user: str = "root") -> Any:
    """What nvidia-ml-py reads on the machine, or the name of the error at its start."""
    return json.loads(run(machine, f"python3 /opt/nvml/read_nvml.py {' '.join(map(str, arguments))}", user=user))


@pytest.fixture(scope="module", autouse=True)
def gpus_can_be_made(labs_can_run: None) -> None:
    """Skips where this machine cannot compile or sign; with RIGUP_REQUIRE_LAB=1 that is a failure."""
    try:
        nvidia_repository.ensure()
    except MissingTool as missing:
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            pytest.fail(missing.message)
        pytest.skip(f"{missing.message} ({missing.hint})")


@pytest.fixture(scope="module")
def fitted(labs_can_run: None) -> Iterator[Machine]:
    """A machine with a driver that has been loaded at a boot; its cards are exchanged from test to test."""
    with made_lab(f"g{os.getpid()}", rig=QUAD_3090) as made:
        (machine,) = made.machines
        add_repository(machine)
        install(machine, f"linux-headers-{KERNEL}", *driver(PINNED))
        machine.reboot()
        yield machine


def with_cards(machine: Machine, rig: str) -> Machine:
    """The machine with these cards, as new, and the pinned driver loaded."""
    gpus = SimulatedGpus(machine)
    if gpus.description() != described(rig, machine):
        gpus.exchange(rig)
        machine.reboot()
    gpus.reload_module()
    run(machine, "systemctl restart nvidia-persistenced")
    return machine


def described(rig: str, machine: Machine) -> dict[str, str]:
    lines = describe(rig, machine.name).splitlines()[1:]
    return dict(line.partition(" ")[::2] for line in lines)


@pytest.fixture
def quad_3090(fitted: Machine) -> Machine:
    """Four RTX 3090, as new."""
    return with_cards(fitted, QUAD_3090)


def test_four_rtx_3090(quad_3090: Machine) -> None:
    read = nvml(quad_3090)
    assert (read["driver"], read["nvml"], read["cuda"]) == ("580.178.04", "13.580.178.04", 13000)
    assert len(read["gpus"]) == 4
    assert len({gpu["uuid"] for gpu in read["gpus"]}) == len({gpu["bus"] for gpu in read["gpus"]}) == 4
    for index, gpu in enumerate(read["gpus"]):
        assert gpu["index"] == gpu["by_uuid"] == gpu["by_bus"] == index
        assert (gpu["name"], gpu["compute_capability"]) == ("NVIDIA GeForce RTX 3090", [8, 6])
        assert gpu["memory"][0] == gpu["memory_v2"] == 24576 * 2**20
        assert gpu["memory"][0] == gpu["memory"][1] + gpu["memory"][2]
        assert (gpu["pcie_generation_max"], gpu["pcie_width_max"]) == (4, 16)
        assert gpu["power_limit"] == gpu["power_default"] == gpu["power_enforced"] == 350_000
        assert gpu["power_bounds"] == [100_000, 350_000]
        assert gpu["temperature"] == gpu["temperature_v1"]
        assert gpu["nvlinks"] == [0, 0, 0, 0]
        assert gpu["processes"] == []
        for absent in ("serial", "ecc", "mig", "numa_node_of_memory"):
            assert gpu[absent] == "NVMLError_NotSupported"
    assert read["first_with_others"] == [{"topology": 30, "p2p_read": 1}] * 3


def test_cuda_gives_out_memory_until_a_card_is_full(quad_3090: Machine) -> None:
    machine, program = quad_3090, Path(__file__).with_name("use_cuda.py")
    machine.ssh("cat >/opt/nvml/use_cuda.py", input=program.read_text(), check=True)

    def used(visible: str = "") -> dict[str, Any]:
        return dict(json.loads(run(machine, f"{visible} python3 /opt/nvml/use_cuda.py")))

    described = SimulatedGpus(machine).description()
    all_cards = used()
    assert (all_cards["init"], all_cards["cards"]) == (0, 4)
    assert (all_cards["name"], all_cards["capability"]) == ("NVIDIA GeForce RTX 3090", [8, 6])
    assert (all_cards["left"], all_cards["error_when_full"]) == (2**30, 2)
    assert (all_cards["read"], all_cards["zeros"]) == ("bytes", [0] * 5)
    assert (all_cards["free"], all_cards["free_again"]) == (0, 1)
    third = described["gpu2.bus"].removeprefix("0000")
    assert [used(f"CUDA_VISIBLE_DEVICES={name}")["bus"] for name in ("2", described["gpu2.uuid"])] == [third] * 2
    assert used("CUDA_VISIBLE_DEVICES=1,9,0")["cards"] == 1
    assert used("CUDA_VISIBLE_DEVICES=9") == {"init": 100, "cards": 0}


def test_eight_b200_with_nvswitch(fitted: Machine) -> None:
    machine = with_cards(fitted, "8x B200")
    read = nvml(machine)
    assert [gpu["name"] for gpu in read["gpus"]] == ["NVIDIA B200"] * 8
    first = read["gpus"][0]
    assert (first["memory_v2"], first["compute_capability"], first["mig"]) == (183359 * 2**20, [10, 0], [0, 0])
    assert first["nvlinks"] == [1] * 18
    assert [gpu["memory_affinity"] for gpu in read["gpus"]] == [[1]] * 4 + [[2]] * 4
    assert [pair["topology"] for pair in read["first_with_others"]] == [40] * 3 + [50] * 4
    assert {gpu["fabric_state"] for gpu in read["gpus"]} == {pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS}

    install(machine, f"nvidia-fabricmanager={PINNED}")
    start = "systemctl start nvidia-fabricmanager"
    assert "NV_WARN_NOTHING_TO_DO" in run(
        machine, f"{start} || {{ journalctl -u nvidia-fabricmanager; false; }}", fails=True
    )
    install(machine, "nvlsm", f"nvidia-fabricmanager={OLD}")
    refused = run(machine, f"{start} || {{ journalctl -u nvidia-fabricmanager; false; }}", fails=True)
    assert "interface version 580.95.05 don't match with driver version 580.178.04" in refused
    install(machine, f"nvidia-fabricmanager={PINNED}")
    run(machine, start)
    assert {gpu["fabric_state"] for gpu in nvml(machine)["gpus"]} == {pynvml.NVML_GPU_FABRIC_STATE_COMPLETED}
    run(machine, "dpkg --purge nvidia-fabricmanager nvlsm; systemctl reset-failed")


def test_a_dgx_spark_has_no_memory_and_no_power_figures(fitted: Machine) -> None:
    read = nvml(with_cards(fitted, "1x GB10"))
    (gpu,) = read["gpus"]
    assert (gpu["name"], gpu["compute_capability"]) == ("NVIDIA GB10", [12, 1])
    for absent in ("memory", "memory_v2", "power_limit", "power_bounds", "power_usage"):
        assert gpu[absent] == "NVMLError_NotSupported"
    assert isinstance(gpu["temperature"], int)


def test_mixed_cards_and_the_flavour_that_blackwell_needs(fitted: Machine) -> None:
    machine = with_cards(fitted, MIXED)
    gpus = nvml(machine)["gpus"]
    assert [(gpu["memory_v2"] >> 20, gpu["compute_capability"]) for gpu in gpus] == [
        (97887, [12, 0]),
        (24576, [8, 6]),
        (24576, [8, 6]),
    ]
    install(machine, f"cuda-drivers={PINNED}", f"nvidia-kernel-dkms={PINNED}")
    SimulatedGpus(machine).reload_module()
    assert "requires use of the NVIDIA open kernel modules" in run(machine, "journalctl -b -u lab-nvidia-load")
    assert "NVIDIA UNIX x86_64 Kernel Module  580.178.04" in run(machine, "cat /proc/driver/nvidia/version")
    assert run(machine, "nvidia-smi -L", fails=True).strip() == "No devices were found"
    install(machine, *driver(PINNED))


def test_a_fresh_machine_shows_cards_but_no_driver(new_lab: Callable[..., Lab]) -> None:
    machine = new_lab(rig=QUAD_3090).machines[0]
    assert run(machine, "cat /sys/bus/pci/devices/*/vendor").split() == ["0x10de"] * 4
    run(machine, "test -e /sys/module/nouveau && test ! -e /proc/driver/nvidia && test ! -e /dev/nvidia0")
    add_repository(machine)

    install(machine, *driver(PINNED))
    assert run(machine, "dkms status").strip() == "nvidia/580.178.04: added"
    install(machine, f"linux-headers-{KERNEL}")
    assert run(machine, "dkms status").strip() == f"nvidia/580.178.04, {KERNEL}, x86_64: installed"
    SimulatedGpus(machine).reload_module()
    assert nvml(machine) == "NVMLError_DriverNotLoaded"
    machine.reboot()
    run(machine, "test ! -e /sys/module/nouveau && test -c /dev/nvidia3")
    assert len(nvml(machine)["gpus"]) == 4


def test_an_upgrade_does_not_match_what_is_loaded_until_the_next_boot(quad_3090: Machine) -> None:
    install(quad_3090, *driver(OLD))
    assert nvml(quad_3090) == "NVMLError_LibRmVersionMismatch"
    SimulatedGpus(quad_3090).reload_module()
    assert nvml(quad_3090)["driver"] == "580.95.05"
    install(quad_3090, *driver(PINNED))
    assert nvml(quad_3090) == "NVMLError_LibRmVersionMismatch"
    assert "580.95.05" in run(quad_3090, "cat /proc/driver/nvidia/version")
    said = run(quad_3090, "nvidia-smi", fails=True)
    assert said == "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n"
    quad_3090.reboot()
    assert nvml(quad_3090)["driver"] == "580.178.04"


def test_a_power_limit_is_set_by_root_within_its_bounds_and_lost_at_reboot(quad_3090: Machine) -> None:
    assert nvml(quad_3090, 1, 280_000) is None
    assert nvml(quad_3090, 1, 400_000) == nvml(quad_3090, 1, 99_000) == "NVMLError_InvalidArgument"
    assert nvml(quad_3090, 1, 250_000, user="ops") == "NVMLError_NoPermission"
    assert [gpu["power_limit"] for gpu in nvml(quad_3090)["gpus"]] == [350_000, 280_000, 350_000, 350_000]
    quad_3090.reboot()
    assert [gpu["power_limit"] for gpu in nvml(quad_3090)["gpus"]] == [350_000] * 4


def test_a_card_that_is_lost_and_one_that_throttles(quad_3090: Machine) -> None:
    gpus = SimulatedGpus(quad_3090)
    gpus.lose(2)
    gpus.throttle(0, celsius=95)
    read = nvml(quad_3090)["gpus"]
    assert read[2] == "NVMLError_GpuIsLost"
    assert (read[0]["temperature"], read[0]["clocks_event_reasons"]) == (95, 0x48)
    assert read[1]["clocks_event_reasons"] == pynvml.nvmlClocksEventReasonGpuIdle
    gpus.restore(2)
    assert nvml(quad_3090)["gpus"][2]["name"] == "NVIDIA GeForce RTX 3090"


def test_a_card_whose_driver_is_stuck_answers_no_question(quad_3090: Machine) -> None:
    gpus = SimulatedGpus(quad_3090)
    gpus.hang(3)
    try:
        assert quad_3090.ssh("timeout 3 python3 /opt/nvml/read_nvml.py").returncode == 124
    finally:
        gpus.restore(3)
    assert len(nvml(quad_3090)["gpus"]) == 4


def test_secure_boot_keeps_a_module_out_that_nobody_signed(quad_3090: Machine) -> None:
    gpus = SimulatedGpus(quad_3090)
    gpus.secure_boot(True)
    quad_3090.reboot()
    try:
        variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
        assert run(quad_3090, f"od -An -tu1 {variable}").split() == ["6", "0", "0", "0", "1"]
        assert nvml(quad_3090) == "NVMLError_DriverNotLoaded"
        assert "is rejected" in run(quad_3090, "journalctl -b -u lab-nvidia-load")
    finally:
        gpus.secure_boot(False)
        quad_3090.reboot()
    assert len(nvml(quad_3090)["gpus"]) == 4


def test_persistence_is_on_while_its_daemon_runs(quad_3090: Machine) -> None:
    assert [gpu["persistence"] for gpu in nvml(quad_3090)["gpus"]] == [1] * 4
    run(quad_3090, "systemctl stop nvidia-persistenced")
    assert [gpu["persistence"] for gpu in nvml(quad_3090)["gpus"]] == [0] * 4
    run(quad_3090, "systemctl start nvidia-persistenced")


def test_nvidia_smi_answers_a_query_as_the_real_one_does(quad_3090: Machine) -> None:
    query = (
        "nvidia-smi --query-gpu=name,memory.used,memory.total,temperature.gpu,ecc.mode.current --format=csv,noheader"
    )
    first = run(quad_3090, query).splitlines()[0]
    assert first == "NVIDIA GeForce RTX 3090, 0 MiB, 24576 MiB, 30, [N/A]"
    assert run(quad_3090, f"{query},nounits").splitlines()[0] == "NVIDIA GeForce RTX 3090, 0, 24576, 30, [N/A]"


def candidate(machine: Machine, package: str) -> str:
    lines = run(machine, f"apt-cache policy {package}").splitlines()
    return next(line.split()[1] for line in lines if "Candidate:" in line)


def test_the_pin_holds_the_next_branch_back(quad_3090: Machine) -> None:
    assert candidate(quad_3090, "nvidia-open") == NEXT
    install(quad_3090, "nvidia-driver-pinning-580")
    try:
        assert candidate(quad_3090, "nvidia-open") == candidate(quad_3090, "libnvidia-ml1") == PINNED
    finally:
        run(quad_3090, "dpkg --purge nvidia-driver-pinning-580")


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_apt_takes_the_right_key_and_no_other(new_lab: Callable[..., Lab], suite: str) -> None:
    machine = new_lab(suite=suite, rig="1x RTX 3090").machines[0]
    right = nvidia_repository.cuda_repository(suite)
    wrong = nvidia_repository.cuda_repository("trixie" if suite == "bookworm" else "bookworm")
    assert right.fingerprint != wrong.fingerprint
    for repository, fails in ((wrong, True), (right, False)):
        key = nvidia_repository.public_key(repository, armoured=True).decode()
        machine.ssh("cat >/etc/apt/keyrings/nvidia.asc", input=key, check=True)
        source = f"Types: deb\nURIs: {right.url}\nSuites: /\nSigned-By: /etc/apt/keyrings/nvidia.asc\n"
        machine.ssh("cat >/etc/apt/sources.list.d/nvidia.sources", input=source, check=True)
        said = run(machine, f"apt-get update -q --error-on=any {ONLY_LAB}", fails=fails)
        assert ("not signed" in said) == fails
    shown = run(machine, f"curl -sSf {right.url}{right.key_file}")
    assert shown.startswith("-----BEGIN PGP PUBLIC KEY BLOCK-----")
