"""NVIDIA's container toolkit on a host, at the pinned version, and its CDI description of the GPUs for podman."""

from __future__ import annotations

import base64
from collections.abc import Generator
from dataclasses import dataclass

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.catalogue.tools.containers import container_facts
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt import commands, foreign_sources, openpgp
from rigup.operations.apt.nvidia_repository import fetched_key, refresh, replace_sources
from rigup.operations.primitives import remote
from rigup.operations.primitives.command_parts import PART_END, files_of, parts_of
from rigup.operations.primitives.steps import step
from rigup.plan import DriverRepository
from rigup.systemd.container_files import KEYRING, SOURCE, toolkit_files

STEP = "container toolkit"
SETTING = "container_toolkit"
# Possible places of a description; the toolkit's own unit writes the first. Source: NVIDIA's CDI support page.
DESCRIPTIONS = "/run/cdi/nvidia.yaml /etc/cdi/nvidia.yaml"
REFRESH_SECONDS = 120


@dataclass(frozen=True)
class ToolkitState:
    """The toolkit's version on a host without revision, its key, and the drivers that the CDI description names.

    others: path and text of each apt source file that names the toolkit's repository, except rigup's own.
    """

    version: str = ""
    keyring: bytes = b""
    described: tuple[str, ...] = ()
    others: tuple[tuple[str, str], ...] = ()


class ToolkitStateFact(FactBase[ToolkitState]):
    """Reads a `ToolkitState` in one command."""

    default = ToolkitState

    def command(self, package: str, named: str) -> str:
        parts = (
            f"dpkg-query -W -f='${{Version}}' {package}",
            f"base64 -w0 {KEYRING}",
            rf"grep -hoE 'libcuda\.so\.[0-9.]+' {DESCRIPTIONS}",
            foreign_sources.question(named),
        )
        return "; ".join(f"{{ {part}; }} 2>/dev/null; echo; echo '{PART_END}'" for part in parts)

    def process(self, output: list[str]) -> ToolkitState:
        *words, files = [*parts_of(output), [], [], [], []][:4]
        version, keyring, described = ([line.strip() for line in part if line.strip()] for part in words)
        others = files_of(files)
        others.pop(SOURCE, None)
        return ToolkitState(
            commands.upstream(version[0]) if version else "",
            base64.b64decode(keyring[0]) if keyring else b"",
            tuple(sorted({name.removeprefix("libcuda.so.") for name in described} - {"1"})),
            tuple(others.items()),
        )


@operation()
def container_toolkit(repository: DriverRepository, driver: str) -> Generator[FunctionCommand, None, None]:
    """Ensures that the toolkit has the pinned version and its CDI description matches the running driver.

    + repository: from `toolkit_repository`
    + driver: the driver's version
    """
    toolkit = container_facts().toolkit
    named = named_in(repository)
    there = host.get_fact(ToolkitStateFact, package=toolkit.package, named=named)
    others = dict(there.others)
    trusted = openpgp.holds_only(there.keyring, repository.fingerprint)
    installed = there.version == toolkit.version and trusted and not foreign_sources.naming(others, named)
    if installed and there.described == (driver,):
        host.noop(f"{toolkit.package} {toolkit.version} describes driver {driver}")
        return
    if not installed:
        foreign_sources.refuse_unclear(host.name, others, named, "NVIDIA's container toolkit")
    yield step(_have, repository, driver, installed)


def named_in(repository: DriverRepository) -> str:
    """The part of an address that identifies the repository; a source may write the architecture as $(ARCH)."""
    return repository.address.removesuffix(f"{repository.architecture}/")


def _have(host: Host, repository: DriverRepository, driver: str, installed: bool) -> None:
    toolkit = container_facts().toolkit
    if not installed:
        _install(host, repository)
    # The unit also starts when a driver is installed, but then the driver may not be loaded yet.
    restarted = remote.run(host, "systemctl", "restart", toolkit.refresh_unit, timeout=REFRESH_SECONDS)
    described = host.get_fact(ToolkitStateFact, package=toolkit.package, named=named_in(repository)).described
    if described != (driver,):
        what = f"driver {', '.join(described)}" if described else "no driver"
        raise HostFailed(
            f"{host.name}: {STEP}: the CDI description of the GPUs is for {what}, not for {driver}"
            + ("" if restarted.ok else f": {restarted.last_line}"),
            f"on the host: journalctl -u {toolkit.refresh_unit}; remove an outdated /etc/cdi/nvidia.yaml",
        )


def _install(host: Host, repository: DriverRepository) -> None:
    toolkit = container_facts().toolkit
    key, named = fetched_key(host, repository, SETTING), named_in(repository)
    others = host.get_fact(ToolkitStateFact, package=toolkit.package, named=named).others
    replace_sources(host, key, KEYRING, dict(others), named, toolkit_files(repository))
    refresh(host, STEP, repository, SOURCE, SETTING)
    commands.install_exactly(host, STEP, {toolkit.package: toolkit.version})
