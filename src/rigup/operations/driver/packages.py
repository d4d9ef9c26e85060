"""NVIDIA's driver as packages, at exactly the locked version, with a module for the kernel that will boot."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Generator

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.catalogue.systems import system_facts
from rigup.errors import HostFailed
from rigup.facts.bounds import MOST_LINE, line
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.nvidia_repository import driver_source
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.plan import DriverPackages, DriverPlan, DriverRepository

STEP = "driver"
DKMS_SECONDS = 1200
SIGNING_KEYS = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
"""Where DKMS keeps its module signing key, on Debian and on Ubuntu."""
_HEADERS = "linux-headers-"
# what may go with the packages of a driver: parts of it, and helpers of the distribution's own
_BELONGS = r"nvidia|^(libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|cuda-drivers)"


# $1 a kernel. Prints the version of the module that it would load; of any module, if no index says which.
_MODULE_VERSION = """
modinfo -k "$1" -F version nvidia || modinfo -F version "$(find "/lib/modules/$1" -name 'nvidia.ko*' | head -n 1)"
true
"""


class KernelModule(FactBase[str]):
    """The version of the NVIDIA module that this kernel would load; "" without one.

    A driver that was removed by halves leaves its module behind.
    """

    default = str

    def command(self, kernel: str) -> str:
        return f"sh -c {shlex.quote(_MODULE_VERSION)} rigup {shlex.quote(kernel)} 2>/dev/null"

    def process(self, output: list[str]) -> str:
        said = output[0].strip() if output else ""
        return line(said[:MOST_LINE])


class SigningKeyEnrolled(FactBase[bool]):
    """Whether the key that DKMS signs modules with is enrolled in the firmware."""

    default = bool

    def command(self) -> str:
        return f"for key in {' '.join(SIGNING_KEYS)}; do [ -f $key ] && mokutil --test-key $key; done 2>/dev/null; true"

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


@operation()
def driver_packages(
    driver: DriverPlan,
    packages: DriverPackages,
    repository: DriverRepository,
    problem: str,
    unpinned: tuple[str, ...] = (),
    foreign: tuple[str, ...] = (),
) -> Generator[FunctionCommand, None, None]:
    """Ensures that the driver is installed at its exact version.

    + driver, packages, repository: from the plan
    + problem: the current problem, from `package_problem` of the driver's state; "" for none
    + unpinned: packages of the driver that have another version, or are the distribution's
    + foreign: those of them that the distribution built
    """
    if not problem:
        host.noop(f"driver {driver.version} is installed")
        return
    yield step(_install, driver, packages, repository, unpinned, foreign)


def _install(
    host: Host,
    driver: DriverPlan,
    packages: DriverPackages,
    repository: DriverRepository,
    unpinned: tuple[str, ...],
    foreign: tuple[str, ...],
) -> None:
    driver_source(repository).refresh(host, STEP)
    before = (packages.pin, *packages.headers, *packages.beside)
    wanted = tuple(dict.fromkeys((*packages.at_version, *unpinned)))
    there = commands.versions(host, before)
    if any(name not in there for name in before):
        commands.update(host, STEP)
        there = commands.versions(host, before)
    offered = commands.versions(host, wanted, repository.address)
    has = {name for name in wanted if driver.version in map(commands.upstream, offered.get(name, ()))}
    replaced = tuple(name for name in unpinned if name in foreign or name not in has)
    coming = [name for name in wanted if name not in replaced or name in packages.at_version]
    exact = commands.exact(host.name, dict.fromkeys(coming, driver.version), offered)
    # a self-built kernel has headers, but no package that tracks them
    before = tuple(name for name in before if name in there or name not in packages.headers[:-1])
    _check_known(host.name, before, there, packages.kernel)
    if replaced:
        _check_removal(host, replaced)
        report(Progress(host.name, STEP, text=f"downloading {driver.version}"))
        commands.download(host, STEP, (*before, *exact), without=[name for name in replaced if name not in has])
        remove_driver(host, replaced)
    report(Progress(host.name, STEP, text=f"installing headers of {packages.kernel}"))
    commands.install(host, STEP, before)
    report(Progress(host.name, STEP, text=f"installing {driver.version}"))
    commands.install(host, STEP, exact)
    _build_module(host, driver, packages.kernel)
    for module in packages.modules:
        remote.run(host, "modprobe", module)  # if its package is for another kernel, the next boot loads it


def remove_driver(host: Host, packages: tuple[str, ...]) -> None:
    """Removes packages of another driver, and what needs them: files of both cannot be there at once."""
    if going := _check_removal(host, packages):
        report(Progress(host.name, STEP, text=f"removing {len(going)} packages of another driver"))
        commands.remove(host, STEP, going)


def _check_removal(host: Host, packages: tuple[str, ...]) -> tuple[str, ...]:
    """All that goes with these packages. Raises HostFailed if a package is among it that is not part of a driver."""
    going = commands.removed_with(host, packages)
    if others := [name for name in going if name not in packages and not re.search(_BELONGS, name)]:
        raise HostFailed(
            f"{host.name}: {STEP}: removing {packages[0]} would also remove {', '.join(others)}",
            f"if you do not need it: apt-get remove {' '.join(others)}; to keep this driver: "
            'driver = "keep" in group_data',
        )
    return going


def _check_known(name: str, packages: Collection[str], there: dict[str, tuple[str, ...]], kernel: str) -> None:
    if unknown := [package for package in packages if package not in there]:
        from rigup.operations.apt.failures import AGAIN  # few runs fail

        foreign = system_facts().foreign_kernel(kernel)
        hint = f"install the headers of kernel {kernel}, or boot a kernel from the host's package sources"
        if series := next((each for each in packages if each in there and each.startswith(_HEADERS)), None):
            image = series.replace(_HEADERS, "linux-image-")
            hint = (
                f"take a kernel of which apt has the headers: apt-get install {image} {series}; remove {kernel} if it "
                f"is newer; reboot, then {AGAIN}"
            )
        raise HostFailed(f"{name}: {STEP}: apt cannot find {', '.join(unknown)}", foreign.missing if foreign else hint)


def _build_module(host: Host, driver: DriverPlan, kernel: str) -> None:
    """Builds the missing module with DKMS; raises HostFailed if it is still missing."""

    def there() -> bool:
        return remote.run(host, "sh", "-c", _MODULE_VERSION, "rigup", kernel).stdout.strip() == driver.version

    if there():
        return
    report(Progress(host.name, STEP, text=f"building the module for {kernel}"))
    built = remote.run(host, "dkms", "autoinstall", "-k", kernel, timeout=DKMS_SECONDS)
    if built.ok and not there():  # DKMS keeps a module of a later version that somebody left there
        install = ("dkms", "install", f"nvidia/{driver.version}", "-k", kernel, "--force")
        built = remote.run(host, *install, timeout=DKMS_SECONDS)
    if not built.ok or not there():
        from rigup.operations.apt.failures import not_built  # few runs fail

        what = f"{host.name}: {STEP}: DKMS did not build module {driver.version} for {kernel}: {built.last_line}"
        raise not_built(host, what, kernel, "on the host: dkms status")
