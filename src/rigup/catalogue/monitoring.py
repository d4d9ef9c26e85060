"""Exporters as facts: their names, matching versions, and which metrics need a key.

The figures live in `data/monitoring/exporters.toml`, each with its source.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from rigup.units import Frozen

FILE = Path(__file__).parent / "data" / "monitoring" / "exporters.toml"


class NodeExporter(Frozen):
    """Debian's exporter of a machine."""

    package: str
    program: str
    sources: dict[str, str]


class GpuExporter(Frozen):
    """NVIDIA's exporter of GPUs.

    listen_variable: of its environment, ADDRESS:PORT. systems: for which it is packaged, as `rig.os` has them.
    versions: by package, with the epoch and without the package's revision.
    """

    listen_variable: str
    systems: tuple[str, ...]
    versions: dict[str, str]
    sources: dict[str, str]


class EngineMetrics(Frozen):
    """key_wanted: the engines whose /metrics wants the API key that the service has."""

    key_wanted: tuple[str, ...]
    sources: dict[str, str]


class ExporterFacts(Frozen):
    """Everything that is known about exporters."""

    node_exporter: NodeExporter
    gpu_exporter: GpuExporter
    engines: EngineMetrics


@lru_cache(maxsize=1)
def exporter_facts() -> ExporterFacts:
    """Reads the toolkit's file."""
    return ExporterFacts.model_validate(tomllib.loads(FILE.read_text()))
