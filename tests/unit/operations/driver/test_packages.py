"""What is said where apt lacks a package of the driver."""

from __future__ import annotations

import pytest

from rigup.errors import HostFailed
from rigup.operations.driver import packages


@pytest.mark.parametrize(
    ("kernel", "headers", "hint"),
    [
        (
            "6.14.11-4-pve",
            "proxmox-headers-6.14.11-4-pve",
            "add Proxmox's repository: pve-no-subscription, or pve-enterprise with a subscription",
        ),
        (
            "6.18.44-custom",
            "linux-headers-6.18.44-custom",
            "install the headers of kernel 6.18.44-custom, or boot a kernel from the host's package sources",
        ),
    ],
)
def test_headers_that_apt_does_not_have(kernel: str, headers: str, hint: str) -> None:
    with pytest.raises(HostFailed) as caught:
        packages._check_known("box", (headers, "dkms"), {"dkms": ("3",)}, kernel)
    assert (caught.value.message, caught.value.hint) == (f"box: driver: apt cannot find {headers}", hint)
