"""Secure Boot and modules built by DKMS: a check before the installation of modules that the kernel would reject."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import FactBase

from rigup.errors import HostFailed
from rigup.facts.probe import Probe

KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
"""Where DKMS keeps its module signing key, on Debian and on Ubuntu."""


class SigningKeyEnrolled(FactBase[bool]):
    """Whether the key that DKMS signs modules with is enrolled in the firmware."""

    default = bool

    def command(self) -> str:
        return f"for key in {' '.join(KEYS)}; do [ -f $key ] && mokutil --test-key $key; done 2>/dev/null; true"

    def process(self, output: list[str]) -> bool:
        return any("already enrolled" in line for line in output)


def check_secure_boot(probe: Probe) -> None:
    """Raises HostFailed if the kernel would not load the module that is about to be installed.

    A loaded driver shows that its key is enrolled.
    """
    if probe.secure_boot != "on" or probe.nvidia.loaded or host.get_fact(SigningKeyEnrolled):
        return
    raise HostFailed(
        f"{host.name}: Secure Boot is on, so the kernel loads only modules signed with an enrolled key, "
        "and the key of DKMS is not enrolled",
        "enrol it: apt install dkms mokutil, dkms generate_mok, mokutil --import /var/lib/dkms/mok.pub, "
        "reboot, confirm at the console (on Ubuntu: update-secureboot-policy --enroll-key); or disable Secure Boot",
    )
