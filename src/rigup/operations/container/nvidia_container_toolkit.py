"""NVIDIA's container toolkit on a host, at the pinned version, and its CDI description of the GPUs for podman."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation
from pyinfra.facts.deb import DebPackages

from rigup.catalogue.tools.containers import container_facts
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.nvidia_repository import SignedRepository
from rigup.operations.primitives import remote
from rigup.operations.primitives.steps import step
from rigup.plan import DriverRepository
from rigup.systemd.container_files import KEYRING, toolkit_files

STEP = "container toolkit"
SETTING, OWNER = "container_toolkit", "NVIDIA's container toolkit"
# Possible places of a description; the toolkit's own unit writes the first. Source: NVIDIA's CDI support page.
DESCRIPTIONS = "/run/cdi/nvidia.yaml /etc/cdi/nvidia.yaml"
REFRESH_SECONDS = 120


class DescribedDrivers(FactBase[tuple[str, ...]]):
    """The versions of the drivers that the CDI description of the GPUs names."""

    default = tuple

    def command(self) -> str:
        return rf"grep -hoE 'libcuda\.so\.[0-9.]+' {DESCRIPTIONS} 2>/dev/null; true"

    def process(self, output: list[str]) -> tuple[str, ...]:
        named = {line.strip().removeprefix("libcuda.so.") for line in output if line.strip()}
        return tuple(sorted(named - {"1"}))


@operation()
def container_toolkit(repository: DriverRepository, driver: str) -> Generator[FunctionCommand, None, None]:
    """Ensures that the toolkit has the pinned version and its CDI description matches the running driver.

    + repository: from `toolkit_repository`
    + driver: the driver's version
    """
    toolkit, source = container_facts().toolkit, toolkit_source(repository)
    there = source.read(host)
    versions = map(commands.upstream, host.get_fact(DebPackages).get(toolkit.package, ()))
    installed = toolkit.version in versions and source.is_right(there)
    if installed and host.get_fact(DescribedDrivers) == (driver,):
        host.noop(f"{toolkit.package} {toolkit.version} describes driver {driver}")
        return
    if not installed:
        source.refuse_unclear(host.name, there)
    yield step(_have, source, driver, installed)


def toolkit_source(repository: DriverRepository) -> SignedRepository:
    """The toolkit's repository; a source may write the architecture in its address as $(ARCH)."""
    named = repository.address.removesuffix(f"{repository.architecture}/")
    return SignedRepository(repository, named, OWNER, SETTING, KEYRING, toolkit_files(repository))


def _have(host: Host, source: SignedRepository, driver: str, installed: bool) -> None:
    toolkit = container_facts().toolkit
    if not installed:
        source.provide(host)
        source.refresh(host, STEP)
        commands.install_exactly(host, STEP, {toolkit.package: toolkit.version})
    # The unit also starts when a driver is installed, but then the driver may not be loaded yet.
    restarted = remote.run(host, "systemctl", "restart", toolkit.refresh_unit, timeout=REFRESH_SECONDS)
    described = host.get_fact(DescribedDrivers)
    if described != (driver,):
        what = f"driver {', '.join(described)}" if described else "no driver"
        raise HostFailed(
            f"{host.name}: {STEP}: the CDI description of the GPUs is for {what}, not for {driver}"
            + ("" if restarted.ok else f": {restarted.last_line}"),
            f"on the host: journalctl -u {toolkit.refresh_unit}; remove an outdated /etc/cdi/nvidia.yaml",
        )
