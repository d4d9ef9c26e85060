"""The driver on a booted machine: from none to loaded, upgraded by hand and put right, and everything that goes wrong.

The machine's GPUs, kernel module and NVIDIA's repository are the lab's; apt, dpkg, systemd and the reboots are real.
The tests go on from one another, in this order: a driver is not installed again for each.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.fleet import FILE_BYTES, UNIT, WEIGHTS, Run, wait_for
from tests.lab.gpu_fleet import NEW, OLD, OTHER_BRANCH, TOO_OLD, GpuFleet, error, steps
from tests.lab.readers import Readers, all_whole

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.rests_on("the run", "driver")]

NEXT_KERNEL = "6.99.0-lab-amd64"
IMPATIENT = (
    "import rigup.operations.driver.reboots as reboots\n"
    "reboots.BOOT_SECONDS, reboots.stop_seconds = 6.0, lambda host: 0.0"
)

# Where the driver is installed already, its step has nothing to do but to reboot.
WHILE_WEIGHTS_COME = f"""
import gevent
import rigup.operations.driver.reboots as reboots
from rigup.operations.primitives import remote

def reboot(host, *words, really=reboots.reboot):
    while not remote.run(host, "find", "{WEIGHTS}", "-name", "*.part", "-size", "+0").stdout:
        gevent.sleep(0.2)
    really(host, *words)

reboots.reboot = reboot
"""


def broken_off(requests: list[dict[str, Any]]) -> bool:
    """Whether the download of a file ended before the file did."""
    return any(entry["path"].startswith("/cdn/") and 0 < entry["bytes"] < FILE_BYTES for entry in requests)


def started(fleet: GpuFleet) -> str:
    """The processes of the service and of the driver's daemon."""
    return fleet.host.tell(f"systemctl show {UNIT} nvidia-persistenced.service -P MainPID")


def test_from_nothing_to_a_loaded_driver_and_an_answer(fleet: GpuFleet) -> None:
    """The weights begin before the driver, are interrupted by the reboot, and go on behind it where they were."""
    fleet.host.tell(f"rm -rf {WEIGHTS}/*")  # an earlier test may have let them finish
    boot, before = fleet.boots(), len(fleet.hub.log())
    fleet.hub.faults(bytes_per_second=FILE_BYTES // 600)
    run = fleet.start("apply", "--yes", "--reboot", "--json", before=WHILE_WEIGHTS_COME)
    run.wait_to_say("rebooting", seconds=300)
    wait_for(lambda: broken_off(fleet.hub.log()[before:]), "the end of the downloads at the shutdown", seconds=300)
    fleet.hub.faults()
    assert run.wait() == 0, run.text
    assert fleet.boots() != boot
    assert [entry for entry in fleet.hub.log()[before:] if entry["status"] == 206], "no file was continued"
    beside = {step["step"]: step["beside"] for step in run.json["hosts"][0]["steps"]}
    assert beside["weights"] and not beside["driver"] and not beside["reboot"]
    assert fleet.loaded() == OLD
    assert fleet.host.answers()
    assert fleet.host.show("ActiveState,UnitFileState", "nvidia-persistenced.service").split() == [
        "ActiveState=active",
        "UnitFileState=enabled",
    ]
    assert "rebooting" in run.text
    assert not fleet.host.says("ls /run/rigup/lease/lease.json"), "a lease taken after the boot is left"


def test_twice_is_once(fleet: GpuFleet) -> None:
    boot = fleet.boots()
    assert fleet.apply("--reboot").json["hosts"][0]["state"] == "unchanged"
    assert fleet.boots() == boot


def test_nothing_newer_comes_by_itself(fleet: GpuFleet) -> None:
    listed = fleet.host.tell("apt-get -s -q full-upgrade")
    assert "nvidia" not in listed.replace("nvidia-driver-pinning", "")
    assert OTHER_BRANCH in fleet.host.tell("apt-cache policy nvidia-open")
    assert '"nvidia-.*"' in fleet.host.tell("apt-config dump Unattended-Upgrade::Package-Blacklist")


def test_an_upgrade_by_hand_is_one_line_and_taken_back(fleet: GpuFleet) -> None:
    weights, boot = fleet.weights(), fleet.boots()
    fleet.upgrade_by_hand(NEW)
    assert "mismatch" in fleet.host.machine.ssh("nvidia-smi").stdout

    pid = started(fleet)
    said = error(fleet.rigup("restart", "chat", "--json", expect=1))
    assert f"driver {OLD} is loaded but {NEW} is installed" in said["message"]
    assert started(fleet) == pid and fleet.host.answers(), "a service was stopped that cannot start again"
    fleet.host.tell("apt-mark hold nvidia-persistenced")
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert shown[0].startswith(f"driver {OLD}: {NEW} ") and f"rigup lock --upgrade driver={NEW}" in shown[0]
    assert shown[0].endswith("ends somebody's hold (apt-mark hold nvidia-persistenced)")

    fleet.upgrade_by_hand(TOO_OLD)
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert shown[0].startswith(f"driver {OLD}: {TOO_OLD} ") and "rigup lock" not in shown[0], "not one to keep"
    run = fleet.apply("--reboot")

    made = run.json["hosts"][0]["changes"]
    assert {change["role"] for change in made} == {"driver", "service"}
    assert set(fleet.installed().values()) == {OLD}
    assert fleet.loaded() == OLD and fleet.boots() == boot, "the kernel had run the right one all along"
    assert fleet.host.answers()
    assert fleet.weights() == weights
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_memory_that_a_dead_process_holds_is_seen_before_anything_stops(fleet: GpuFleet) -> None:
    held = "/run/lab-gpus/gpu0.memory_used_mib"
    fleet.host.tell(f"echo 23040 > {held}")
    assert re.search(
        r"2\d\.\d GiB of 24\.0 GiB are held by no process", fleet.rigup("diff", "--json").stderr.read_text()
    )
    fleet.rigup("stop", "chat")
    fleet.host.tell(f"echo 24300 > {held}")
    refused = error(fleet.apply(expect=2))["message"]
    assert "23.7 GiB of 24.0 GiB are held by no process" in refused
    fleet.host.tell(f"rm {held}")
    fleet.rigup("start", "chat")
    pid = started(fleet)
    fleet.host.tell("echo 2 > /run/lab-gpus/gpu0.compute_mode")
    assert "compute mode is prohibited" in error(fleet.apply(expect=2))["message"]
    assert "compute mode is prohibited" in error(fleet.rigup("restart", "chat", "--json", expect=1))["message"]
    fleet.host.tell("rm /run/lab-gpus/gpu0.compute_mode")
    assert started(fleet) == pid
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_a_driver_that_spoils_the_answers_is_named_and_the_release_stays(fleet: GpuFleet) -> None:
    current = fleet.host.tell("readlink /etc/rigup/services/chat/current")
    fleet.host.behave(8192, "nonsense")
    fleet.describe_gpus(NEW)
    for _ in range(2):
        said = error(fleet.apply("--reboot", expect=1))
        assert f"driver {OLD} became {NEW}" in said["message"] and 'without "Paris"' in said["message"]
        assert f"rigup lock --upgrade driver={OLD}" in said["hint"]
        assert fleet.host.tell("readlink /etc/rigup/services/chat/current") == current
    assert fleet.rigup("status", "--json", expect=1).json["services"][0]["health"] == "no answer"
    fleet.host.tell("rm -rf /run/rigup-test")
    fleet.describe_gpus(OLD)
    fleet.apply("--reboot")
    assert (fleet.loaded(), fleet.host.answers()) == (OLD, True)


def test_a_power_limit_is_one_change(fleet: GpuFleet) -> None:
    fleet.describe_gpus(OLD, rig={"power_limit_w": 280})
    assert fleet.apply().json["hosts"][0]["changes"] == [{"role": "power", "step": "power limit 280 W"}]
    assert fleet.limits() == {"280.00"}


def test_cards_in_use_keep_their_modules_and_who_uses_them_is_named(fleet: GpuFleet) -> None:
    fleet.describe_gpus(NEW, rig={"power_limit_w": 280})
    boot, gpus = fleet.boots(), SimulatedGpus(fleet.host.machine)
    gpus.use(1)
    try:
        said = error(fleet.apply(expect=1))
    finally:
        gpus.free()
    assert re.match(rf"{fleet.host.name}: driver: .* {OLD}; python3 \(process \d+\) ", said["message"])
    assert "rigup apply --reboot" in said["hint"]
    assert (fleet.loaded(), fleet.boots()) == (OLD, boot)
    assert set(fleet.installed().values()) == {NEW}


def test_idle_cards_get_the_new_modules_without_a_reboot(fleet: GpuFleet) -> None:
    weights, boot = fleet.weights(), fleet.boots()
    shown = steps(fleet.rigup("diff", "--json", expect=1))
    assert shown[0].startswith(f"load driver {NEW}: ") and f" {OLD};" in shown[0]
    readers = Readers(fleet.host, fleet.host)
    begun = readers.begin(400)
    fleet.apply()

    assert all_whole(begun, 400), "the modules were exchanged under answers that were being read"
    assert "drain: connections left: 3" in fleet.host.tell(f"journalctl -o cat -u {UNIT}")
    readers.close()
    assert fleet.boots() == boot
    assert fleet.loaded() == NEW and set(fleet.installed().values()) == {NEW}
    assert fleet.limits() == {"280.00"}
    assert fleet.host.answers()
    assert fleet.weights() == weights
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_a_power_limit_outlives_a_reboot(fleet: GpuFleet) -> None:
    fleet.host.machine.reboot()
    limited = "systemctl is-system-running --wait; systemctl is-active --quiet rigup-power-limit"
    wait_for(lambda: fleet.host.says(limited), "the unit that sets the limit")
    assert fleet.limits() == {"280.00"}


def test_a_power_limit_that_the_cards_do_not_take_is_refused_with_their_bounds(fleet: GpuFleet) -> None:
    fleet.describe_gpus(NEW, rig={"power_limit_w": 500})
    said = error(fleet.rigup("diff", "--json", expect=1))
    assert re.search(r"\b500 W .* GPU 0 \(NVIDIA GeForce RTX 3090\) .* 100 to 350 W", said["message"])
    assert fleet.limits() == {"280.00"}


def test_a_power_limit_that_is_not_wanted_any_more_is_taken_away(fleet: GpuFleet) -> None:
    fleet.describe_gpus(NEW)
    assert steps(fleet.apply(), "power") == ["no power limit"]
    assert fleet.limits() == {"350.00"}
    assert not fleet.host.says("ls /etc/systemd/system/rigup-power-limit.service")


def test_what_an_interrupted_dpkg_has_left_is_finished(fleet: GpuFleet) -> None:
    # dpkg dies between unpacking and configuring, as in a power cut
    fleet.host.tell("cd /tmp; apt-get -q download nvidia-persistenced; dpkg --unpack nvidia-persistenced_*.deb")
    assert "nvidia-persistenced" in fleet.host.tell("dpkg --audit")
    assert re.search("dpkg .* nvidia-persistenced", steps(fleet.rigup("diff", "--json", expect=1))[0])
    fleet.apply()
    assert fleet.host.tell("dpkg --audit") == ""
    assert fleet.host.answers()


def next_kernel(run: Run) -> dict[str, str]:
    """What a diff says of the kernel that boots next."""
    (found,) = [one for one in run.json["hosts"][0]["drift"] if one["what"] == "kernel"]
    return dict(found)


def test_a_kernel_that_moved_gets_headers_and_a_module(fleet: GpuFleet) -> None:
    boot, packages = fleet.boots(), f"linux-image-{NEXT_KERNEL} linux-headers-{NEXT_KERNEL}"
    fleet.host.tell(f"apt-get install -q -y linux-image-{NEXT_KERNEL}")
    pid = started(fleet)
    shown = fleet.rigup("diff", "--json", expect=1)
    assert re.match(rf"driver {NEW}: headers .* {NEXT_KERNEL}\b", steps(shown)[0])
    assert next_kernel(shown)["hint"].startswith("do not reboot")
    fleet.apply()
    assert next_kernel(fleet.rigup("diff", "--json", expect=1))["hint"] == "reboot when convenient"
    module = f"/lib/modules/{NEXT_KERNEL}/updates/dkms/nvidia.ko"
    assert fleet.host.tell(f"tr '\\0' '\\n' <{module} | sed -n 's/^version=//p'") == NEW
    assert (fleet.loaded(), fleet.boots()) == (NEW, boot)
    assert started(fleet) == pid and fleet.host.answers(), "what only the next kernel needs has restarted something"
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    fleet.host.tell(f"apt-get purge -q -y {packages}; rm -rf /lib/modules/{NEXT_KERNEL}")


def test_a_host_that_boots_an_old_kernel_is_told_of(fleet: GpuFleet) -> None:
    fleet.host.tell("mkdir -p /boot; touch /boot/vmlinuz-6.99.0-lab-amd64")
    # the kernel that runs has no module, as where DKMS built it for the newest one only
    drop_in = "/etc/systemd/system/lab-nvidia-load.service.d"
    module = f"/lib/modules/{fleet.host.tell('uname -r')}/updates/dkms/nvidia.ko"
    fleet.host.tell(f"mkdir -p {drop_in}; printf '[Service]\\nExecStartPre=rm -f {module}\\n' >{drop_in}/no.conf")
    fleet.describe_gpus(OLD)
    said = error(fleet.apply("--reboot", expect=1))
    assert " 6.99.0-lab-amd64" in said["message"]
    assert "boot loader" in said["hint"]
    fleet.host.tell(f"rm -r {drop_in} /boot/vmlinuz-6.99.0-lab-amd64")


def test_a_reboot_that_never_ends_is_a_failure_with_a_way_to_look(fleet: GpuFleet) -> None:
    # sshd of the next boot starts late, and rigup gives up early; without modprobe it must be a reboot
    fleet.host.tell("mv /usr/local/sbin/modprobe /root/")
    drop_in = "/etc/systemd/system/ssh.service.d"
    fleet.host.tell(f"mkdir -p {drop_in}; printf '[Service]\\nExecStartPre=sleep 14\\n' >{drop_in}/late.conf")
    run = fleet.start("apply", "--yes", "--reboot", "--json", before=IMPATIENT)
    assert run.wait() == 1, run.text
    said = error(run)
    assert " 6.00 s " in said["message"]
    assert "console" in said["hint"]

    wait_for(lambda: fleet.host.says(f"rm -r {drop_in}; mv /root/modprobe /usr/local/sbin/"), "the machine")
    fleet.apply("--reboot")
    assert fleet.loaded() == OLD
    assert fleet.host.answers()
