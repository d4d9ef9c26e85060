"""Every package, file and address of a driver, by distribution and kind of rig, in golden files."""

from __future__ import annotations

import pytest

from rigup.errors import InputError
from rigup.plan import DriverPlan
from rigup.planner.driver_packages import driver_packages, driver_repository, user_space_packages
from rigup.systemd.driver_files import container_files, driver_files, source, toolkit_files
from rigup.systemd.power_limit import PATH, power_unit
from tests.golden.golden import assert_golden

KERNELS = {
    "debian-12": "6.1.0-25-amd64",
    "debian-13": "6.12.48+deb13-cloud-amd64",
    "ubuntu-22.04": "5.15.0-122-generic",
    "ubuntu-24.04": "6.8.0-45-lowlatency",
    "ubuntu-26.04": "7.0.0-30-generic",
}
RIGS = {
    "cards": DriverPlan(version="580.178.04", branch="580", flavour="open"),
    "proprietary": DriverPlan(version="580.178.04", branch="580", flavour="proprietary"),
    "b200": DriverPlan(version="580.178.04", branch="580", flavour="open", fabric_manager=True, subnet_manager=True),
}


@pytest.mark.parametrize("os", KERNELS)
@pytest.mark.parametrize("rig", RIGS)
def test_what_is_installed(os: str, rig: str) -> None:
    packages = driver_packages(RIGS[rig], os, "x86_64", KERNELS[os], nvswitches=0)
    lines = [f"{name}: {' '.join(value) if isinstance(value, tuple) else value}\n" for name, value in packages]
    assert_golden(f"drivers/{os}_{rig}.txt", "".join(lines))


# The kernels that hosts of each system run, and the packages that bring their successors where those are known.
FLAVOURS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "debian-12": [("6.1.0-25-amd64", ()), ("6.1.0-25-cloud-amd64", ()), ("6.12.9+bpo-amd64", ()),
                  ("6.8.12-4-pve", ()), ("6.8.12-4-pve", ("proxmox-default-kernel", "proxmox-kernel-6.8"))],
    "debian-13": [("6.12.48+deb13-amd64", ()), ("6.12.48+deb13-cloud-amd64", ("linux-image-cloud-amd64",)),
                  ("6.14.11-4-pve", ("proxmox-default-kernel",)), ("6.18.44-custom", ())],
    "ubuntu-22.04": [("5.15.0-122-generic", ()), ("6.8.0-45-generic", ()), ("5.15.0-122-lowlatency", ()),
                     ("6.8.0-1058-nvidia", ()), ("5.15.0-1116-azure", ()), ("6.5.0-1020-aws", ())],
    "ubuntu-24.04": [("6.8.0-45-generic", ()), ("6.14.0-33-generic", ()), ("6.14.0-33-lowlatency", ()),
                     ("6.8.0-1058-nvidia", ()), ("6.14.0-1009-nvidia-64k", ()), ("6.8.0-1060-aws", ()),
                     ("6.14.0-1014-aws", ("linux-image-aws",)), ("6.8.0-45-generic", ("linux-image-virtual",)),
                     ("6.17.0-19-generic", ("linux-image-generic", "linux-image-generic-hwe-24.04")),
                     ("6.11.0-1016-oem", ("linux-image-oem-24.04b",))],
    "ubuntu-26.04": [("7.0.0-30-generic", ()), ("7.2.0-12-generic", ()), ("7.0.0-1013-nvidia", ()),
                     ("7.0.0-1008-aws", ()), ("7.0.0-30-generic", ("linux-image-generic-hwe-26.04",))],
}  # fmt: skip


@pytest.mark.parametrize("os", FLAVOURS)
def test_headers_of_every_flavour_of_kernel(os: str) -> None:
    lines = []
    for kernel, followed in FLAVOURS[os]:
        packages = driver_packages(RIGS["b200"], os, "x86_64", kernel, nvswitches=0, kernel_packages=followed)
        beside = f" [{', '.join(followed)}]" if followed else ""
        lines.append(f"{kernel}{beside}: {' '.join((*packages.headers, *packages.beside))}\n")
    assert_golden(f"drivers/{os}_kernels.txt", "".join(lines))


@pytest.mark.parametrize("os", KERNELS)
def test_where_from(os: str) -> None:
    repository = driver_repository(os, "x86_64")
    text = f"{source(repository)}\n{repository.key_address}\n{repository.fingerprint}\n"
    assert_golden(f"drivers/{os}_source.txt", text)


def test_what_keeps_it_there() -> None:
    packages = driver_packages(RIGS["b200"], "debian-12", "x86_64", KERNELS["debian-12"], nvswitches=0)
    files = {
        **driver_files(RIGS["b200"], packages),
        **toolkit_files({"cuda-toolkit-13-0": "13.0.2", "libcublas-13-0": "13.1.0.3"}),
        PATH: power_unit(280),
    }
    assert_golden("drivers/files.txt", "".join(f"==> {path}\n{text}\n" for path, text in files.items()))


@pytest.mark.parametrize("branch", ["580", "595"])
@pytest.mark.parametrize("os", KERNELS)
def test_a_container_gets_libraries_only(os: str, branch: str) -> None:
    version = {"580": "580.178.04", "595": "595.91.07"}[branch]
    plan = DriverPlan(version=version, branch=branch, flavour="open")
    packages = user_space_packages(plan, os)
    ubuntu = "libnvidia-compute-580" if branch == "580" else "libnvidia-compute"
    assert packages == {ubuntu if os.startswith("ubuntu") else "nvidia-driver-cuda": version}


def test_what_keeps_modules_out_of_a_container() -> None:
    files = container_files(RIGS["cards"])
    assert_golden("drivers/container_files.txt", "".join(f"==> {path}\n{text}\n" for path, text in files.items()))


def test_cards_without_switches_leave_no_file_for_them() -> None:
    packages = driver_packages(RIGS["cards"], "debian-12", "x86_64", KERNELS["debian-12"], nvswitches=0)
    assert driver_files(RIGS["cards"], packages)["/etc/modules-load.d/rigup-nvidia.conf"] == ""


def test_switches_that_the_host_shows_get_a_manager_of_the_drivers_version() -> None:
    without, with_switches = (
        driver_packages(RIGS["cards"], "ubuntu-24.04", "x86_64", KERNELS["ubuntu-24.04"], nvswitches=count)
        for count in (0, 4)
    )
    assert set(with_switches.at_version) - set(without.at_version) == {"nvidia-fabricmanager"}
    assert with_switches.units[-1] == "nvidia-fabricmanager.service"
    assert with_switches.beside == without.beside


def test_a_kernel_of_somebody_elses_gets_the_headers_that_the_system_has() -> None:
    packages = driver_packages(RIGS["cards"], "debian-12", "x86_64", "6.18.44-custom", nvswitches=0)
    assert packages.headers == ("linux-headers-amd64", "linux-headers-6.18.44-custom")


def test_a_mirror_has_the_same_folders_and_may_have_a_key_of_its_own() -> None:
    own = driver_repository("debian-12", "aarch64", "https://mirror.lan/cuda/", "AB" * 20)
    assert own.address == "https://mirror.lan/cuda/debian12/sbsa/"
    assert (own.key_address, own.fingerprint) == (f"{own.address}abababab.pub", "AB" * 20)
    same = driver_repository("debian-13", "x86_64", "https://mirror.lan/cuda")
    assert same.key_address == "https://mirror.lan/cuda/debian13/x86_64/8793F200.pub"


def test_another_system_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        driver_repository("fedora-42", "x86_64")
    assert caught.value.message == "fedora-42: the catalogue has no NVIDIA driver packages for this system"
    assert caught.value.hint == "choose from: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04, ubuntu-26.04"
