"""Prometheus exporters for the machine, its services and its GPUs, if group_data has `monitoring`."""

from __future__ import annotations

from pyinfra import host
from pyinfra.api import deploy

from rigup import layout
from rigup.errors import HostFailed, InputError
from rigup.facts.probe import Probe
from rigup.monitoring.exporters import GPU_FILES, GPU_UNITS, NODE_FILES, NODE_UNITS, PROGRAM, TEXT_FILE, UNIT_OF
from rigup.operations.apt.packages import debian_packages
from rigup.operations.primitives.removal import InstalledPart, removed_part
from rigup.operations.primitives.text_files import text_files
from rigup.operations.primitives.units import running_units
from rigup.plan import DriverRepository, Monitoring
from rigup.programs import program_file
from roles.base import PACKAGES

STOP_SECONDS = 120
RELOAD = ("systemctl", "daemon-reload")


@deploy("monitoring")
def monitoring(
    wanted: Monitoring | None, probe: Probe, repository: DriverRepository | None, alone: bool = True
) -> None:
    """Run the wanted exporters, and stop and remove those that rigup installed earlier.

    repository: NVIDIA's, if its exporter is wanted. alone: whether no other role runs on this host; the packages of
    `base` are then installed here.
    """
    node, gpus = (wanted.node_exporter, wanted.dcgm_exporter) if wanted else (False, False)
    if not (node and gpus):
        files = (() if node else NODE_FILES) + (() if gpus else GPU_FILES)
        unwanted = InstalledPart(
            traces=files,
            units=(() if node else NODE_UNITS) + (() if gpus else GPU_UNITS),
            paths=files + (() if node else (TEXT_FILE,)),
            doing="",
            absent="no unwanted exporter is installed",
            stop_seconds=STOP_SECONDS,
        )
        removed_part(name="exporters that are no longer wanted", part=unwanted)
    if wanted:
        _exporters(wanted, probe, repository, PACKAGES if alone else ())


def _exporters(
    wanted: Monitoring, probe: Probe, repository: DriverRepository | None, packages: tuple[str, ...]
) -> None:
    """Write files before packages: a package starts its exporter, which must listen only at the configured address."""
    from rigup.catalogue.tools.monitoring import exporter_facts
    from rigup.monitoring.exporters import exporter_files
    from rigup.operations.monitoring import OutdatedUnits, gpu_exporter

    _check_packaged(wanted, probe)
    files = exporter_files(wanted)
    if wanted.node_exporter:
        files[f"{layout.PROGRAMS}/{PROGRAM}"] = program_file(PROGRAM).read_text()
    listening = ", ".join(f"{wanted.listen} port {port}" for port in wanted.listeners.values())
    then = tuple((path, RELOAD) for path in files)
    written = text_files(name=f"exporters listen at {listening}", files=files, then=then)
    if wanted.node_exporter:
        packages = (*packages, exporter_facts().node_exporter.package)
    if packages:
        debian_packages(packages)
    if wanted.dcgm_exporter and repository:
        versions = exporter_facts().gpu_exporter.versions
        gpu_exporter(name=f"{' '.join(list(versions.items())[-1])}", repository=repository, versions=versions)
    units = (NODE_UNITS if wanted.node_exporter else ()) + (GPU_UNITS if wanted.dcgm_exporter else ())
    pairs = tuple((path, unit) for path, unit in UNIT_OF.items() if path in files)
    restart = bool(written.will_change) or bool(host.get_fact(OutdatedUnits, files=pairs))
    running_units(name=f"run {' and '.join(units)}", units=units, restart=restart)


def _check_packaged(wanted: Monitoring, probe: Probe) -> None:
    from rigup.planner.monitoring import check_packaged

    if wanted.dcgm_exporter:
        try:
            check_packaged("monitoring", probe.os)
        except InputError as error:
            raise HostFailed(f"{host.name}: {error.message}", error.hint) from None
