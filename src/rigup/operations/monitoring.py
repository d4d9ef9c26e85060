"""Removes exporters that are no longer configured, and installs NVIDIA's from its own repository."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation
from pyinfra.facts.deb import DebPackages

from rigup.host import Host
from rigup.operations.apt import commands
from rigup.operations.apt.nvidia_repository import NvidiaSources, is_right, provide, refresh, refuse_unclear
from rigup.operations.primitives import remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.primitives.steps import step
from rigup.operations.primitives.text_files import TextFiles
from rigup.plan import DriverRepository

STEP = "monitoring"
STOP_SECONDS = 120

# $1 units to stop, then files to remove. A unit is stopped before the file that limits it to loopback is removed.
_REMOVE = """
units=$1; shift
for unit in $units; do systemctl --quiet disable --now "$unit" 2>/dev/null || true; done
for unit in $units; do
  case "$(systemctl is-active "$unit" || true)" in active|activating) echo "$unit is still running" >&2; exit 1;; esac
done
rm -f "$@"
systemctl daemon-reload
"""


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
def removed_exporters(
    files: tuple[str, ...], units: tuple[str, ...], remains: tuple[str, ...] = ()
) -> Generator[FunctionCommand, None, None]:
    """Ensures that these exporters do not run and rigup's files for them do not exist. Packages stay.

    + files: rigup's files; if none exists, rigup did not install the exporter and leaves it alone
    + units: to stop and disable
    + remains: further files to remove in that case
    """
    there = host.get_fact(TextFiles, paths=files)
    if not there:
        host.noop("no unwanted exporter is installed")
        return
    yield step(_remove, units, (*files, *remains))


def _remove(host: Host, units: tuple[str, ...], files: tuple[str, ...]) -> None:
    remote.script(host, _REMOVE, " ".join(units), *files, timeout=STOP_SECONDS)


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
    refuse_unclear(host.name, host.get_fact(NvidiaSources))
    yield step(_install, repository, versions)


def _has(there: Iterable[str], version: str) -> bool:
    return commands.upstream(version) in map(commands.upstream, there)


def _install(host: Host, repository: DriverRepository, versions: Mapping[str, str]) -> None:
    if not is_right(host.get_fact(NvidiaSources), repository):
        provide(host, repository)
    refresh(host, STEP, repository)
    wanted = {name: commands.upstream(version) for name, version in versions.items()}
    exact = commands.exact(host.name, wanted, commands.versions(host, wanted))
    report(Progress(host.name, STEP, text=f"installing {', '.join(wanted)}"))
    commands.install(host, STEP, exact)
