"""NVIDIA's exporter beside Debian's, on a machine with simulated cards: its package, its pin, the driver under it.

Cards, repository and exporter are the lab's stand-ins; apt, systemd and Debian's exporter are real. The tests go on
from one another, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigup.monitoring.exporters import GPU_FILES, GPU_UNIT, NODE_UNIT, TIMER
from tests.lab.fleet import Run
from tests.lab.gpu_fleet import NEW, OLD, GpuFleet, made_gpu_fleet, steps

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the run", "monitoring")]

BOTH = {"dcgm_exporter": True}
VERSIONS = "dpkg-query -W -f '${Version}\\n' datacenter-gpu-manager-4-core datacenter-gpu-manager-exporter"
SECONDS = 500
METRICS = "curl -sf http://127.0.0.1:9400/metrics"


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards and nothing installed, and a lock that pins the older driver."""
    with made_gpu_fleet(tmp_path_factory, "dcgm") as fleet:
        yield fleet


def applied(fleet: GpuFleet, *words: str) -> Run:
    """An apply that may install a driver on a busy machine."""
    return fleet.apply(*words, seconds=SECONDS)


def test_it_comes_with_the_driver_at_its_version_and_tells_of_every_card(fleet: GpuFleet) -> None:
    fleet.describe_gpus(OLD, monitoring=BOTH)
    assert steps(applied(fleet, "--reboot"), "monitoring") == [
        "exporters listen at 127.0.0.1 port 9100, 127.0.0.1 port 9400",
        "Debian packages prometheus-node-exporter",
        "datacenter-gpu-manager-exporter 4.8.2",
        f"run {TIMER} and {NODE_UNIT} and {GPU_UNIT}",
    ]
    host = fleet.host
    assert host.tell(VERSIONS).splitlines() == ["1:4.5.3-1", "4.8.2-1"]
    temperatures = host.tell(f"{METRICS} | grep ^DCGM_FI_DEV_GPU_TEMP").splitlines()
    assert len(temperatures) == 4 and all('modelName="NVIDIA GeForce RTX 3090"' in line for line in temperatures)
    assert host.tell("ss -Hltn sport = :9400 | tr -s ' ' | cut -d' ' -f4") == "127.0.0.1:9400"
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_apt_keeps_it_with_the_dcgm_that_belongs_to_it(fleet: GpuFleet) -> None:
    policy = fleet.host.tell("apt-cache policy datacenter-gpu-manager-4-core")
    assert "1:4.5.3-1 1001" in policy.replace("***", "").replace("  ", " ") and "Candidate: 1:4.5.3-1" in policy


def test_another_driver_is_loaded_under_it_without_a_reboot(fleet: GpuFleet) -> None:
    booted = fleet.boots()
    fleet.describe_gpus(NEW, monitoring=BOTH)
    applied(fleet)
    assert (fleet.loaded(), fleet.boots()) == (NEW, booted)
    assert f'DCGM_FI_DRIVER_VERSION="{NEW}"' in fleet.host.tell(METRICS)


def test_it_goes_alone(fleet: GpuFleet) -> None:
    fleet.describe_gpus(NEW, monitoring={})
    (step,) = steps(fleet.rigup("diff", "--json", expect=1), "monitoring")
    assert step.startswith("exporters ")
    assert steps(fleet.apply(), "monitoring") == [step]
    host = fleet.host
    assert not host.says(f"systemctl is-active {GPU_UNIT}") and host.says(f"systemctl is-active {NODE_UNIT}")
    assert not host.says(f"ls {' '.join(GPU_FILES)} 2>/dev/null | grep .")
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
