"""Facts about operating systems: those that rigup supports, their kernels' packages, and what others would need.

The figures live in `data/systems/systems.toml`, each with its source.
"""

import re
from collections.abc import Iterable
from functools import cache

from rigup.catalogue.data_files import toolkit_facts
from rigup.catalogue.drivers import DEBIAN_ARCHITECTURES
from rigup.units import Frozen


class System(Frozen):
    """One supported system, by its name in `rig.os` ("debian-12"); the file explains each field."""

    os: str
    glibc: str
    python: str
    kernel_flavour: str
    kernel_flavours: str
    kernel: str = ""
    enablement: str = ""
    enablement_flavours: tuple[str, ...] = ()
    extra_modules: tuple[str, ...] = ()
    extra_modules_before: str = ""
    source: str


class ForeignKernel(Frozen):
    """Kernels of another maker that a supported system may run, and the packages with their headers.

    missing: what to do where apt does not have these packages.
    """

    ending: str
    headers: str
    future: str
    missing: str
    source: str


class Unsupported(Frozen):
    """Systems that rigup refuses, by their ids in /etc/os-release; `needs` completes "it would need"."""

    ids: tuple[str, ...]
    needs: str


class SystemFacts(Frozen):
    """All facts about operating systems."""

    systems: tuple[System, ...]
    kernels: tuple[ForeignKernel, ...]
    unsupported: tuple[Unsupported, ...]

    def system(self, os: str) -> System | None:
        """Facts about a supported system; None for another."""
        return next((known for known in self.systems if known.os == os), None)

    def foreign_kernel(self, release: str) -> ForeignKernel | None:
        """The maker of a kernel by the end of its release ("6.14.11-4-pve"); None for the system's own kernels."""
        return next((known for known in self.kernels if release.endswith(f"-{known.ending}")), None)

    def needs(self, os: str, like: str) -> str:
        """What rigup would need to support this system; "" where nobody has thought about it.

        os: as in the probe ("fedora-42"). like: the ids of the systems that it follows, separated by spaces.
        """
        for name in (os.rpartition("-")[0] or os, *like.split()):
            for known in self.unsupported:
                if name in known.ids:
                    return known.needs
        return ""


@cache
def system_facts() -> SystemFacts:
    """Reads the toolkit's file."""
    return toolkit_facts("systems/systems.toml", SystemFacts)


def kernel_headers(system: System, architecture: str, kernel: str, followed: Iterable[str] = ()) -> tuple[str, ...]:
    """The packages with headers of future kernels, then the one with those of this kernel.

    kernel: a release. followed: the installed packages that bring new kernels, as in the probe; without one, the
    package that brings this kernel's successors is taken from its release.
    """
    foreign = system_facts().foreign_kernel(kernel)
    own = (foreign.headers if foreign else "linux-headers-{kernel}").format(kernel=kernel)
    found = [headers for package in followed if (headers := _headers_beside(package))]
    if not found:
        found = [foreign.future if foreign else f"linux-headers-{_series(system, architecture, kernel)}"]
    return (*dict.fromkeys(found), own)


def extra_modules(system: System, kernel: str) -> tuple[str, ...]:
    """The packages with modules of this kernel that a server's installation lacks."""
    found = re.match(r"([0-9]+)\.([0-9]+)", kernel)
    if found is None or not system.extra_modules or system_facts().foreign_kernel(kernel):
        return ()
    before = tuple(int(part) for part in system.extra_modules_before.split("."))
    if (int(found[1]), int(found[2])) >= before:
        return ()
    return tuple(name.format(kernel=kernel) for name in system.extra_modules)


def _headers_beside(image: str) -> str:
    """The package with the headers of the kernels that another one brings; "" if there is none by that name."""
    if image == "proxmox-default-kernel":
        return "proxmox-default-headers"
    for kernels, headers in (("linux-image-", "linux-headers-"), ("proxmox-kernel-", "proxmox-headers-")):
        if image.startswith(kernels) and not image.startswith("linux-image-unsigned-"):
            return headers + image.removeprefix(kernels)
    return ""


def _series(system: System, architecture: str, kernel: str) -> str:
    """How the packages of this kernel's series end: "amd64", "cloud-amd64", "generic", "generic-hwe-24.04".

    The usual end for a kernel that the system does not know.
    """
    words = {"debian_architecture": DEBIAN_ARCHITECTURES[architecture]}
    flavours = system.kernel_flavours.format(**words)
    found = re.fullmatch(rf"([0-9]+\.[0-9]+)[0-9.]*(?:[+~][\w.]+)?(?:-[0-9.]+)?-({flavours})", kernel)
    if found is None:
        return system.kernel_flavour.format(**words)
    later = found[2] in system.enablement_flavours and found[1] != system.kernel
    return f"{found[2]}-{system.enablement}" if later else found[2]
