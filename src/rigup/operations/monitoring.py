"""Exporters: which of them run with outdated files, and NVIDIA's from its own repository."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation
from pyinfra.facts.deb import DebPackages

from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.nvidia_repository import SignedRepository, driver_source
from rigup.operations.primitives.steps import step
from rigup.plan import DriverRepository

STEP = "monitoring"


class OutdatedUnits(FactBase[tuple[str, ...]]):
    """The units started before their file was written, because rigup was interrupted in between."""

    default = tuple

    def command(self, files: tuple[tuple[str, str], ...]) -> str:
        """files: (path, unit) pairs. systemd creates the compared link whenever it starts a unit."""
        find = "find {file} -newer /run/systemd/units/invocation:{unit} -printf '{unit}\\n' 2>/dev/null"
        return "; ".join(find.format(file=file, unit=unit) for file, unit in files) + "; true"

    def process(self, output: list[str]) -> tuple[str, ...]:
        return tuple(line.strip() for line in output if line.strip())


@operation()
def gpu_exporter(repository: DriverRepository, versions: Mapping[str, str]) -> Generator[FunctionCommand, None, None]:
    """Ensures that NVIDIA's GPU exporter is installed at its exact version, with the matching DCGM.

    + repository: NVIDIA's, from `driver_repository`; added as a source if it is missing
    + versions: by package, without the package's revision
    """
    there = host.get_fact(DebPackages)
    if all(_has(there.get(name, ()), version) for name, version in versions.items()):
        host.noop(f"{', '.join(versions)} are installed")
        return
    source = driver_source(repository)
    source.refuse_unclear(host.name, source.read(host))
    yield step(_install, source, versions)


def _has(there: Iterable[str], version: str) -> bool:
    return commands.upstream(version) in map(commands.upstream, there)


def _install(host: Host, source: SignedRepository, versions: Mapping[str, str]) -> None:
    if not source.is_right(source.read(host)):
        source.provide(host)
    source.refresh(host, STEP)
    wanted = {name: commands.upstream(version) for name, version in versions.items()}
    commands.install_exactly(host, STEP, wanted)
