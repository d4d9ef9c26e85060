"""NVIDIA's driver as packages, at exactly the locked version, with a module for the kernel that will boot."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.nvidia_repository import refresh
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.plan import DriverPackages, DriverPlan, DriverRepository

STEP = "driver"
DKMS_SECONDS = 1200


class KernelModule(FactBase[bool]):
    """Whether NVIDIA's kernel module exists for this kernel."""

    @staticmethod
    def default() -> bool:
        return False

    def command(self, kernel: str) -> str:
        return f"find /lib/modules/{kernel} -name 'nvidia.ko*' 2>/dev/null; true"

    def process(self, output: list[str]) -> bool:
        return any("nvidia.ko" in line for line in output)


@operation()
def driver_packages(
    driver: DriverPlan,
    packages: DriverPackages,
    repository: DriverRepository,
    problem: str,
    unpinned: tuple[str, ...] = (),
) -> Generator[FunctionCommand, None, None]:
    """Ensures that the driver is installed at its exact version.

    + driver, packages, repository: from the plan
    + problem: the current problem, from `package_problem` of the driver's state; "" for none
    + unpinned: packages of the driver that have another version
    """
    if not problem:
        host.noop(f"driver {driver.version} is installed")
        return
    yield step(_install, driver, packages, repository, unpinned)


def _install(
    host: Host, driver: DriverPlan, packages: DriverPackages, repository: DriverRepository, unpinned: tuple[str, ...]
) -> None:
    refresh(host, STEP, repository)
    before = (packages.pin, *packages.headers, *packages.beside)
    wanted = tuple(dict.fromkeys((*packages.at_version, *unpinned)))
    there = commands.versions(host, (*before, *wanted))
    if any(name not in there for name in before):
        commands.update(host, STEP)
        there = commands.versions(host, (*before, *wanted))
    exact = commands.exact(host.name, dict.fromkeys(wanted, driver.version), there)
    # a self-built kernel has headers, but no package that tracks them
    before = tuple(name for name in before if name in there or name not in packages.headers[:-1])
    _check_known(host.name, before, there, packages.kernel)
    report(Progress(host.name, STEP, text=f"installing headers of {packages.kernel}"))
    commands.install(host, STEP, before)
    report(Progress(host.name, STEP, text=f"installing {driver.version}"))
    commands.install(host, STEP, exact)
    _build_module(host, driver, packages.kernel)
    for module in packages.modules:
        remote.run(host, "modprobe", module)  # if its package is for another kernel, the next boot loads it


def _check_known(name: str, packages: Iterable[str], there: dict[str, tuple[str, ...]], kernel: str) -> None:
    if unknown := [package for package in packages if package not in there]:
        raise HostFailed(
            f"{name}: {STEP}: apt cannot find {', '.join(unknown)}",
            f"install the headers of kernel {kernel}, or boot a kernel from the host's package sources",
        )


def _build_module(host: Host, driver: DriverPlan, kernel: str) -> None:
    """Builds the missing module with DKMS; raises HostFailed if it is still missing."""
    exists = ("sh", "-c", f"find /lib/modules/{kernel} -name 'nvidia.ko*' | grep -q .")
    if remote.run(host, *exists).ok:
        return
    report(Progress(host.name, STEP, text=f"building the module for {kernel}"))
    built = remote.run(host, "dkms", "autoinstall", "-k", kernel, timeout=DKMS_SECONDS)
    if not built.ok or not remote.run(host, *exists).ok:
        raise HostFailed(
            f"{host.name}: {STEP}: DKMS did not build module {driver.version} for {kernel}: {built.last_line}",
            "on the host: dkms status, and /var/lib/dkms/nvidia/*/build/make.log",
        )
