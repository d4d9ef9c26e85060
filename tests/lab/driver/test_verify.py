"""`rigup verify` on a booted machine: NVML and CUDA are the lab's, and copy in the machine's memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.fleet import wait_for
from tests.lab.gpu_fleet import OLD, GpuFleet, error

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.rests_on("the run", "links", "benchmarks of services", "running services", "gateways"),
]

LOST_BEFORE_THE_START = """
import rigup.operations.service.releases as releases
from rigup.operations.primitives import remote

def switch(host, *words, really=releases.switch):
    remote.check_output(host, "sh", "-c", "echo 1 >/run/lab-gpus/gpu0.lost")
    really(host, *words)

releases.switch = switch
"""


def verified(fleet: GpuFleet, *options: str, expect: int = 0) -> dict[str, Any]:
    run = fleet.rigup("verify", fleet.host.name, "--json", *options, expect=expect)
    (host,) = run.json["hosts"]
    return dict(host)


def test_links_that_do_what_they_can(fleet: GpuFleet) -> None:
    fleet.apply("--reboot")
    boot = fleet.boots()
    for index in range(4):  # a busy machine sleeps longer than a copy lasts
        SimulatedGpus(fleet.host.machine).set(index, host_gbs=200)
    host = verified(fleet)
    gpu, pair = host["links"]["gpus"][0], host["links"]["pairs"][0]
    assert (gpu["generation"], gpu["loaded_generation"], gpu["most_generation"]) == (1, 4, 4)
    assert (gpu["loaded_width"], gpu["card_width"], gpu["nvlinks_active"]) == (16, 16, 0)
    assert gpu["host_gbs"] > 0
    assert (pair["pair"], pair["read"], pair["direct"], pair["correct"]) == ([0, 1], False, False, True)
    assert len(host["links"]["pairs"]) == 12
    assert host["state"] == "well"
    assert fleet.boots() == boot


def test_nothing_is_copied_if_so_asked(fleet: GpuFleet) -> None:
    host = verified(fleet, "--read-only")
    assert {link["unmeasured"] for link in (*host["links"]["gpus"], *host["links"]["pairs"])} == {"not asked for"}


def test_a_card_that_an_engine_fills_is_not_measured(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.set(1, memory_used_mib=24000)
    links = verified(fleet)["links"]
    gpus.unset(1, "memory_used_mib")
    why = [gpu["unmeasured"] for gpu in links["gpus"]]
    assert [bool(one) for one in why] == [False, True, False, False] and "576 MiB" in why[1]
    assert {tuple(pair["pair"]) for pair in links["pairs"] if pair["unmeasured"]} == {
        pair for other in (0, 2, 3) for pair in ((1, other), (other, 1))
    }


def is_problem(host: dict[str, Any], subject: str, *values: str) -> bool | None:
    """Whether the one finding about this subject with these values is a problem; None if there is not one."""
    found = [one for one in host["findings"] if one["message"].startswith(f"{subject}: ")]
    found = [one for one in found if all(value in one["message"] for value in values)]
    return bool(found[0]["problem"]) if len(found) == 1 else None


def test_one_lost_card_keeps_none_of_the_others_from_a_check(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    own = "/usr/local/bin/journalctl"
    bus = fleet.host.tell("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader").splitlines()[2]
    logged = f"NVRM: Xid (PCI:{bus[4:].partition('.')[0]}): 79, GPU has fallen off the bus."
    fleet.host.tell(f"printf '#!/bin/sh\necho \"{logged}\"\n' >{own}; chmod 755 {own}")
    gpus.lose(2)
    host = verified(fleet, expect=1)
    fleet.host.tell(f"rm {own}")
    assert any("Xid 79" in one["message"] for one in host["findings"] if one["message"].startswith("GPU 2 "))

    (row,) = fleet.rigup("status", "--json", expect=1).json["services"]
    assert row["health"] == "answers" and "gpus" in row["drift"]
    said = error(fleet.apply(expect=2))
    assert said["message"].partition(": ")[2].startswith("GPU 2 ") and 'gpus = "3x RTX 3090"' in said["hint"]
    fleet.describe_gpus(OLD, rig={"gpus": "3x RTX 3090"})
    fleet.apply()
    assert fleet.host.answers()
    gpus.restore(2)
    fleet.describe_gpus(OLD)
    fleet.apply()
    assert [link["gpu"] for link in host["links"]["gpus"]] == [0, 1, 3]
    assert [lost["lost"] for lost in host["links"]["lost"]] == [2]
    assert any(one["message"].startswith("GPU 2 ") and one["problem"] for one in host["findings"])
    assert len(host["links"]["pairs"]) == 6


def test_a_card_that_is_lost_after_the_comparison_is_named_with_the_way_on(fleet: GpuFleet) -> None:
    """The stand-in for the engine ends, as an engine does whose card is gone; the release before needs none."""
    fleet.host.behave(4096, "crash")
    chat = {"model": "SmolLM2-135M-Instruct", "context": 4096, "gpus": [0]}
    fleet.describe_gpus(OLD, services={"chat": chat})
    said = error(fleet.rigup("apply", "--yes", "--json", before=LOST_BEFORE_THE_START, expect=1))
    SimulatedGpus(fleet.host.machine).restore(0)
    fleet.host.tell("rm -rf /run/rigup-test")
    lost = rf"{fleet.host.name}: GPU 0 \(NVIDIA GeForce RTX 3090, GPU-\S+\) does not respond: GPU is lost; chat: "
    assert re.match(lost, said["message"]) and said["message"].endswith(", which answers")
    assert 'gpus = "3x RTX 3090"' in said["hint"]
    fleet.describe_gpus(OLD)
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_a_driver_that_hangs_is_named_as_what_is_waited_for(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.hang(1)
    run = fleet.start("diff")
    run.wait_to_say("waiting for NVML")
    gpus.restore(1)
    assert run.wait() in (0, 1), run.text


def test_what_is_wrong_is_said_with_a_hint_and_ends_with_1(fleet: GpuFleet) -> None:
    gpus = SimulatedGpus(fleet.host.machine)
    gpus.set(0, pcie_width=8)
    gpus.set(2, pcie_generation_loaded=1)
    gpus.throttle(3)
    for index in range(4):
        gpus.set(index, p2p=0)
    gpus.set(1, corrupts=1)
    host = verified(fleet, expect=1)
    shown = fleet.rigup("verify", fleet.host.name, expect=1).text
    fleet.host.tell("rm -f /run/lab-gpus/gpu*")
    assert is_problem(host, "GPU 0", "8 lanes", " 16")
    assert is_problem(host, "GPU 2", "generation 1 ", " 4")
    assert is_problem(host, "GPU 3", "92 °C", "hardware slowdown, hardware thermal")
    assert is_problem(host, "GPU 1 to GPU 0", " changed")
    of_driver = [one for one in host["findings"] if not one["message"].startswith("GPU ")]
    assert any(one["problem"] and "GeForce" in one["message"] and "P2P" in one["message"] for one in of_driver)
    assert "CHANGED" in shown and " in the BIOS" in shown


MOCK = Path(__file__).parents[2] / "unit/bench/mock_endpoint.py"
# stands for torch as far as the multiplication uses it
TORCH = """
import time
from types import SimpleNamespace
float16 = "half"
def device(kind, index): return index
def randn(*shape, device, dtype): pass
def matmul(one, other, out=None): pass
cuda = SimpleNamespace(device_count=lambda: 4, synchronize=lambda device: time.sleep(0.01))
"""


def test_cards_are_watched_under_load(fleet: GpuFleet) -> None:
    host, gpus = fleet.host, SimulatedGpus(fleet.host.machine)
    fleet.rigup("stop", "chat")
    run = fleet.rigup("verify", host.name, "--load", "5", expect=1)
    assert " torch " in run.text
    gpus.throttle(3)
    gpus.set(3, clock_mhz=900, clock_max_mhz=2100)
    gpus.set(0, clocks_event_reasons=4)
    build = "/opt/rigup/builds/vllm-0-mock"
    host.tell(f"python3 -m venv --without-pip {build} && echo '{{}}' >{build}/manifest.json")
    into = f"cd {build}/lib/python3*/site-packages && mkdir torch && cat >torch/__init__.py"
    host.machine.ssh(into, input=TORCH, check=True)
    found = verified(fleet, "--read-only", "--load", "5", expect=1)
    host.tell(f"rm -r {build}")
    assert found["load"]["by"].endswith(" vllm-0-mock")
    assert found["load"]["gpus"][3]["held_back"] == {"hardware slowdown": 1, "hardware thermal": 1}
    hot = ("GPU 3", "100%", "92 °C", "hardware slowdown, hardware thermal", "900 MHz of 2100")
    assert is_problem(found, *hot) is True and is_problem(found, "GPU 0", "350 W", "100%") is False
    _serve_mock(fleet)
    found = verified(fleet, "--read-only", "--load", "5", expect=1)
    host.tell("systemctl stop rigup-mock; rm -r /etc/rigup/services/mock; rm -f /run/lab-gpus/gpu*")
    assert (found["load"]["by"], is_problem(found, *hot)) == ("mock", True)
    assert found["load"]["seconds"] == pytest.approx(5) and not host.says("pgrep -f 'python3 -I -c'")
    fleet.rigup("start", "chat")


def _serve_mock(fleet: GpuFleet) -> None:
    """Serves the mock of the benchmark's tests, as a release of a service `mock` would."""
    host, folder = fleet.host, "/etc/rigup/services/mock"
    release = {"build": "llama.cpp-b1-mock", "command": ["server", "--host", "127.0.0.1", "--port", "8001"]}
    host.tell(
        f"mkdir -p {folder}/releases/1; ln -sfn releases/1 {folder}/current; "
        f"echo '{json.dumps(release)}' > {folder}/current/release.json"
    )
    host.machine.ssh("cat > /run/mock_endpoint.py", input=MOCK.read_text(), check=True)
    settings = json.dumps({"style": "llama.cpp", "port": 8001, "itl": 0.005})
    host.tell(f"systemd-run --quiet --collect --unit=rigup-mock python3 /run/mock_endpoint.py '{settings}'")
    wait_for(lambda: host.says("curl -sf 127.0.0.1:8001/v1/models"), "the mock")
