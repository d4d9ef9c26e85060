"""Why dpkg failed is in the lines above the one that names the package; DKMS and a full disk are looked into."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rigup.catalogue.driver_versions import nvidia_versions
from rigup.operations.apt.failures import failed, reason
from rigup.operations.primitives import remote

FULL = f"""\
Setting up linux-image-6.1.0-99-amd64 (6.1.99-1) ...
update-initramfs: Generating /boot/initrd.img-6.1.0-99-amd64
zstd: error 70 : Write error : cannot write block : {remote.FULL}
E: mkinitramfs failure zstd -q -9 -T0 70
update-initramfs: failed for /boot/initrd.img-6.1.0-99-amd64 with 1.
run-parts: /etc/kernel/postinst.d/initramfs-tools exited with return code 1
dpkg: error processing package linux-image-6.1.0-99-amd64 (--configure):
 installed linux-image-6.1.0-99-amd64 package post-installation script subprocess returned error exit status 1
Errors were encountered while processing:
 linux-image-6.1.0-99-amd64
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
NO_SPACE = f"zstd: error 70 : Write error : cannot write block : {remote.FULL}"
DKMS = """\
Setting up libfine (1) ...
Setting up nvidia-kernel-open-dkms (580.95.05-1) ...
Building module(s)...(bad exit status: 2)
Error! Bad return status for module build on kernel: 6.18.44-amd64 (x86_64)
Consult /var/lib/dkms/nvidia/580.95.05/build/make.log for more information.
dpkg: error processing package nvidia-kernel-open-dkms (--configure):
 installed nvidia-kernel-open-dkms package post-installation script subprocess returned error exit status 10
dpkg: dependency problems prevent configuration of nvidia-open:
 nvidia-open depends on nvidia-kernel-open-dkms (= 580.95.05-1); however:
dpkg: error processing package nvidia-open (--configure):
 dependency problems - leaving unconfigured
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
NOT_BUILT = "Error! Bad return status for module build on kernel: 6.18.44-amd64 (x86_64)"
UNPACKED = """\
Unpacking b (1) ...
dpkg: error processing archive /var/cache/apt/archives/b_1_all.deb (--unpack):
 trying to overwrite '/usr/bin/a', which is also in package a 1
"""
LOG = "/var/lib/dkms/nvidia/580.95.05/build/make.log"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Reading...\nE: Unable to locate package x\nE: Sub-process failed", "Unable to locate package x"),
        ("E: Failed to fetch http://m/InRelease  Connection refused\nE: Some index files failed to download.",
         "Failed to fetch http://m/InRelease  Connection refused"),
        ("dpkg: error processing package x (--configure):\nE: Sub-process /usr/bin/dpkg returned an error code (1)",
         "dpkg cannot finish x"),
        (FULL, f"dpkg cannot finish linux-image-6.1.0-99-amd64: {NO_SPACE}"),
        (DKMS, f"dpkg cannot finish nvidia-kernel-open-dkms: {NOT_BUILT}"),
        (UNPACKED, "dpkg cannot finish b_1_all.deb: trying to overwrite '/usr/bin/a', which is also in package a 1"),
        ("something odd", "something odd"),
        ("", "exited without output"),
    ],
)  # fmt: skip
def test_the_line_that_says_why(text: str, why: str) -> None:
    assert reason(text) == why


class Asked:
    """Stands for a host that answers every script with the same lines."""

    def __init__(self, *lines: str) -> None:
        self.name, self.data = "box", SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.connector_data: dict[str, Any] = {}
        self.lines = lines

    def run_shell_command(self, _: Any, **__: Any) -> tuple[bool, Any]:
        return True, SimpleNamespace(stdout="\n".join(self.lines), stderr="")


def told(text: str, *lines: str) -> tuple[str, str]:
    host: Any = Asked(*lines)
    error = failed(host, "box: driver", text, "the journal")
    return error.message, error.hint or ""


def test_a_full_disk_is_named_with_what_is_free() -> None:
    message, hint = told(FULL, "90000000000 /", "12000000 /boot", "90000000000 /")
    assert message.endswith(f"{NO_SPACE}; 12.0 MB are free in /boot")
    assert "/boot" in hint and "autoremove --purge" in hint


@pytest.mark.parametrize("lines", [(), ("nonsense",), ("many /boot",), ("9" * 99 + " /boot",)])
def test_a_full_disk_of_which_the_host_says_nothing_useful(lines: tuple[str, ...]) -> None:
    assert "df -h" in told(FULL, *lines)[1]


def test_a_driver_that_does_not_compile_ends_with_the_compilers_error_and_a_later_driver() -> None:
    error = "nv.c:71:12: error: implicit declaration of function 'zap_page'"
    message, hint = told(DKMS, LOG, error)
    assert message == f"box: driver: dpkg cannot finish nvidia-kernel-open-dkms: {NOT_BUILT}; {LOG}: {error}"
    assert "rigup lock --upgrade driver=580.178.04" in hint
    assert "older than 6.18.44-amd64" in hint


def test_no_later_driver_is_made_up() -> None:
    newest = nvidia_versions().driver.versions[-1]
    _, hint = told(DKMS, LOG.replace("580.95.05", newest), "error: x")
    assert "--upgrade" not in hint and "older than 6.18.44-amd64" in hint


@pytest.mark.parametrize("log", ["", "/etc/shadow", f"{LOG} rm"])
def test_only_dkms_own_log_is_named(log: str) -> None:
    assert told(DKMS, log, "secret") == (
        f"box: driver: dpkg cannot finish nvidia-kernel-open-dkms: {NOT_BUILT}",
        "the journal",
    )


def test_a_module_of_somebody_else_is_told_apart() -> None:
    _, hint = told(DKMS, "/var/lib/dkms/zfs/2.3.1/build/make.log", "x.c:1: error: y")
    assert "zfs" in hint and "--upgrade" not in hint
