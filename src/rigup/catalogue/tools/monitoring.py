"""Facts about exporters: their names, matching versions, and which metrics need a key.

The figures live in `data/monitoring/exporters.toml`, each with its source.
"""

import tomllib
from functools import lru_cache
from pathlib import Path

from rigup.units import Frozen

FILE = Path(__file__).parents[1] / "data" / "monitoring" / "exporters.toml"


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


@lru_cache(maxsize=1)
def exporter_facts() -> ExporterFacts:
    """Reads the toolkit's file."""
    return ExporterFacts.model_validate(tomllib.loads(FILE.read_text()))
