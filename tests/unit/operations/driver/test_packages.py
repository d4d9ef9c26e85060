"""What is said where apt lacks a package of the driver."""

from __future__ import annotations

import pytest

from rigup.errors import HostFailed
from rigup.operations.driver import packages


@pytest.mark.parametrize(
    ("kernel", "series", "headers", "hint"),
    [
        (
            "6.14.11-4-pve",
            "proxmox-default-headers",
            "proxmox-headers-6.14.11-4-pve",
            "add Proxmox's repository: pve-no-subscription, or pve-enterprise with a subscription",
        ),
        (
            "6.18.44-custom",
            "",
            "linux-headers-6.18.44-custom",
            "install the headers of kernel 6.18.44-custom, or boot a kernel from the host's package sources",
        ),
        (
            "6.1.0-18-amd64",
            "linux-headers-amd64",
            "linux-headers-6.1.0-18-amd64",
            "take a kernel of which apt has the headers: apt-get install linux-image-amd64 linux-headers-amd64; remove "
            "6.1.0-18-amd64 if it is newer; reboot, then run rigup apply again",
        ),
    ],
)
def test_headers_that_apt_does_not_have(kernel: str, series: str, headers: str, hint: str) -> None:
    there = {name: ("3",) for name in ("dkms", series) if name}
    with pytest.raises(HostFailed) as caught:
        packages._check_known("box", (*there, headers), there, kernel)
    assert (caught.value.message, caught.value.hint) == (f"box: driver: apt cannot find {headers}", hint)
