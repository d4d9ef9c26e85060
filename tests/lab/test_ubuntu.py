"""A machine that looks like Ubuntu 24.04: a GPU host's roles twice, a first boot, Ubuntu 26.04's tools, a container.

Debian is underneath; os-release, package sources, kernel packages and NVIDIA's package names are as on Ubuntu.
needrestart, sudo-rs and the Rust coreutils are the real ones. The tests go on from one another, in this order.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from rigup.lab.packages.nvidia_repository import cuda_repository, public_key
from rigup.systemd.container_files import KEYRING, PREFERENCES, SOURCE
from tests.lab.fleet import wait_for
from tests.lab.fleet_fixtures import made_site
from tests.lab.gpu_fleet import OLD, RIG, GpuFleet, error
from tests.lab.test_troubles_of_hosts import PACKAGE, half_configured

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.rests_on("the run", "driver", "images")]

PACKAGES = (
    "nvidia-open",
    "nvidia-driver-580-open",
    "nvidia-dkms-580-open",
    "libnvidia-compute-580",
    "nvidia-utils-580",
)
HELD = f"{OLD}-1ubuntu1"
RIG_AND_MORE: dict[str, Any] = {
    "rig": {"os": "ubuntu-24.04", "power_limit_w": 280},
    "monitoring": {"dcgm_exporter": True},
    "gateway": {"port": 8080},
}
ROLES = [
    "base",
    "repository",
    "driver",
    "cuda",
    "power",
    "engine",
    "weights",
    "judgement",
    "service",
    "gateway",
    "monitoring",
]
OF_THE_SYSTEM = "sha256sum /etc/netplan/* /etc/apt/sources.list /etc/apt/sources.list.d/ubuntu.sources"
PODMAN = "Package: podman\\nVersion: 4.9.3\\nArchitecture: all\\nMaintainer: Lab\\nDescription: a stand-in\\n"
IMAGE = f"""
[[images]]
engine = "llama.cpp"
version = "b11434"
variant = "cuda"
repository = "ghcr.io/ggml-org/llama.cpp"
digest = "sha256:{"0" * 64}"
"""
# As Proxmox's enterprise repository answers without a subscription: apt-get update fails.
BROKEN_SOURCE = "deb http://hub:8091/nothing ./"
RUST_TOOLS = """
apt-get -q -y install --no-install-recommends sudo-rs rust-coreutils
mv /usr/bin/sudo /usr/bin/sudo.ws && ln -s sudo-rs /usr/bin/sudo
ln -s /usr/lib/cargo/bin/coreutils/* /usr/local/bin/
useradd --create-home guest && echo guest:let-me-in-7 | chpasswd
cp -r /root/.ssh /home/guest/ && chown -R guest: /home/guest
"""


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """One machine with four cards that follows Ubuntu's HWE kernels."""
    with made_site(
        tmp_path_factory.mktemp("site"), f"ubuntu{os.getpid()}", packages=(), suite="noble", rig=RIG
    ) as site:
        fleet = GpuFleet(*site)
        fleet.describe_gpus(OLD, **RIG_AND_MORE)
        fleet.host.tell("apt-get -q update && apt-get -q -y install linux-image-generic-hwe-24.04")
        fleet.host.tell(f"{OF_THE_SYSTEM} >/root/before; echo '{BROKEN_SOURCE}' >/etc/apt/sources.list.d/broken.list")
        try:
            yield fleet
        finally:
            fleet.end_runs()


def test_a_first_boot_that_is_not_done_is_waited_for(fleet: GpuFleet) -> None:
    """cloud-init first, then the lock that apt-daily or unattended-upgrades would hold."""
    fleet.host.tell("echo 60 >/etc/lab-cloud-init-seconds")
    fleet.host.machine.reboot()
    with fleet.apts_lock_held():
        run = fleet.start("apply", "--yes", "--json", "--reboot")
        run.wait_to_say("cloud-init")
        fleet.host.tell("echo {} >/run/cloud-init/result.json; echo 1 >/etc/lab-cloud-init-seconds")
        run.wait_to_say("apt's lock")
    assert run.wait(500) == 0, run.text
    (host,) = run.json["hosts"]
    assert {change["role"] for change in host["changes"]} == set(ROLES)


def test_ubuntus_packages_are_installed_at_the_locked_version(fleet: GpuFleet) -> None:
    versions = fleet.host.tell(f"dpkg-query -W -f '${{Version}}\\n' {' '.join(PACKAGES)}").split()
    assert versions == [HELD] * len(PACKAGES)
    assert fleet.loaded() == OLD and fleet.host.answers()
    assert fleet.host.says("systemctl is-active --quiet nvidia-persistenced.service")


def test_headers_follow_the_hardware_enablement_kernel(fleet: GpuFleet) -> None:
    assert fleet.host.says("dpkg-query -W linux-headers-generic-hwe-24.04 linux-headers-$(uname -r)")
    assert not fleet.host.says("dpkg-query -W linux-headers-generic")


def test_needrestart_leaves_rigups_services_alone(fleet: GpuFleet) -> None:
    """needrestart's own parser reads the file, in batch mode, which restarts nothing."""
    fleet.host.tell("perl -c /etc/needrestart/conf.d/rigup.conf")
    assert "rigup-" not in fleet.host.tell("needrestart -b -r l")


def test_netplan_and_the_systems_own_sources_stay(fleet: GpuFleet) -> None:
    fleet.host.tell(f"{OF_THE_SYSTEM} | cmp - /root/before")
    assert "ubuntu2404" in fleet.host.tell("cat /etc/apt/sources.list.d/nvidia-cuda.sources")


def test_twice_is_once(fleet: GpuFleet) -> None:
    boot = fleet.boots()
    assert fleet.apply("--reboot").json["hosts"][0]["state"] == "unchanged"
    assert fleet.boots() == boot


def test_a_package_that_dpkg_cannot_finish_stops_the_container_toolkit_with_its_cause(fleet: GpuFleet) -> None:
    """Of the toolkit's repository there is the key; a package without content stands for podman."""
    host, lock, key = fleet.host, fleet.root / "rigup.lock", public_key(cuda_repository("noble"))
    toolkit = {"repository": "http://127.0.0.1:8093/stable/deb", "key_fingerprint": fleet.fingerprint}
    chat = {"model": "SmolLM2-135M-Instruct", "context": 8192, "gpus": [0], "engine": "llama.cpp", "build": "image"}
    fleet.describe_gpus(
        OLD,
        services={"chat": chat},
        **{f"container_toolkit_{name}": said for name, said in toolkit.items()},
        **RIG_AND_MORE,
    )
    lock.write_text(f"{lock.read_text()}{IMAGE}")
    host.tell(f"mkdir -p /run/key /run/podman/DEBIAN; echo {b64encode(key).decode()} | base64 -d >/run/key/gpgkey")
    host.tell(f"printf '{PODMAN}' >/run/podman/DEBIAN/control; dpkg-deb -b /run/podman /run/p.deb; dpkg -i /run/p.deb")
    host.tell("systemd-run --quiet --collect --unit=serves-key python3 -m http.server -b 127.0.0.1 -d /run/key 8093")
    wait_for(lambda: host.says("curl -sf http://127.0.0.1:8093/gpgkey"), "the key's server")
    with half_configured(fleet, "echo 'opaque: cannot reach its licence server' >&2; exit 3"):
        said = error(fleet.apply(expect=1))
    host.tell(f"systemctl stop serves-key; dpkg --purge podman; rm {SOURCE} {KEYRING} {PREFERENCES}")
    why = f"dpkg cannot finish {PACKAGE}: opaque: cannot reach its licence server"
    assert said["message"] == f"{host.name}: container toolkit: {why}"
    assert f"apt-get remove {PACKAGE};" in said["hint"] and "network" not in said["hint"]
    assert host.answers()
    fleet.describe_gpus(OLD, **RIG_AND_MORE)
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


@pytest.fixture
def rust_tools(fleet: GpuFleet) -> Iterator[None]:
    """sudo and coreutils as Ubuntu 26.04 has them: first in PATH."""
    fleet.host.tell(f"set -e; {RUST_TOOLS}")
    yield
    fleet.host.tell("mv /usr/bin/sudo.ws /usr/bin/sudo; find /usr/local/bin -type l -delete; userdel -f -r guest")
    fleet.describe_gpus(OLD, **RIG_AND_MORE)


def log_in_as(fleet: GpuFleet, user: str) -> None:
    name, data = fleet.host.machine.inventory
    (fleet.root / "inventories/rehearsal.py").write_text(f"boxes = {[(name, {**data, 'ssh_user': user})]!r}\n")


@pytest.mark.usefixtures("rust_tools")
@pytest.mark.parametrize(
    ("user", "password", "begins"),
    [("opspw", "not-the-one", "sudo rejects "), ("guest", "let-me-in-7", "guest ")],
)
def test_what_sudo_rs_refuses_is_named(
    fleet: GpuFleet, monkeypatch: pytest.MonkeyPatch, user: str, password: str, begins: str
) -> None:
    log_in_as(fleet, user)
    monkeypatch.setenv("RIGUP_SUDO_PASSWORD", password)
    run = fleet.apply(expect=2)
    assert error(run)["message"].startswith(f"{fleet.host.name}: {begins}")
    assert password not in run.text


@pytest.mark.usefixtures("rust_tools")
def test_sudo_rs_with_a_password_and_the_rust_coreutils_do(fleet: GpuFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in_as(fleet, "opspw")
    monkeypatch.setenv("RIGUP_SUDO_PASSWORD", "lab")
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    fleet.host.wipe()
    fleet.forget_builds()
    fleet.apply(seconds=400)
    assert fleet.host.answers()
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"


def test_a_container_gets_the_libraries_of_its_hosts_driver_and_no_module(fleet: GpuFleet) -> None:
    """The machine says that it is one; the driver that stays loaded without packages stands for that of its host."""
    fleet.describe_gpus(OLD, rig=RIG_AND_MORE["rig"])
    program = "/usr/local/bin/systemd-detect-virt"
    fleet.host.tell(f"printf '#!/bin/sh\\necho lxc\\n' >{program}; chmod 755 {program}")
    fleet.host.tell("DEBIAN_FRONTEND=noninteractive apt-get -q -y purge '*nvidia*' dkms")
    assert fleet.loaded() == OLD
    boot = fleet.boots()
    fleet.apply("--reboot")
    installed = fleet.host.tell("dpkg-query -W -f '${Package}\\n' | grep -e nvidia -e dkms").split()
    assert installed == ["libnvidia-compute-580"]
    assert not fleet.host.says("apt-get install -q -y nvidia-open")
    assert fleet.boots() == boot and fleet.host.answers()
    assert fleet.apply("--reboot").json["hosts"][0]["state"] == "unchanged"


def test_a_container_that_lacks_a_device_is_told_the_lines(fleet: GpuFleet) -> None:
    fleet.host.tell("rm /dev/nvidia3")
    said = error(fleet.apply(expect=2))
    assert " 3 of 4 " in said["message"]
    assert "dev3: /dev/nvidia3" in said["hint"]
