"""Facts about exporters: their names, matching versions, and which metrics need a key.

The figures live in `data/monitoring/exporters.toml`, each with its source.
"""

from functools import cache

from rigup.catalogue.data_files import toolkit_facts
from rigup.units import Frozen


class NodeExporter(Frozen):
    """Debian's exporter for a machine."""

    package: str
    program: str
    sources: dict[str, str]


class GpuExporter(Frozen):
    """NVIDIA's exporter for GPUs.

    listen_variable: the environment variable with ADDRESS:PORT. systems: those with a package, as in `rig.os`.
    versions: by package, with the epoch and without the package's revision.
    """

    listen_variable: str
    systems: tuple[str, ...]
    versions: dict[str, str]
    sources: dict[str, str]


class EngineMetrics(Frozen):
    """key_wanted: the engines whose /metrics requires the service's API key."""

    key_wanted: tuple[str, ...]
    sources: dict[str, str]


class ExporterFacts(Frozen):
    """All facts about exporters."""

    node_exporter: NodeExporter
    gpu_exporter: GpuExporter
    engines: EngineMetrics


@cache
def exporter_facts() -> ExporterFacts:
    """Reads the toolkit's file."""
    return toolkit_facts("monitoring/exporters.toml", ExporterFacts)
