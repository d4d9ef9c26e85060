"""Known versions of NVIDIA's driver and CUDA toolkit: the defaults of a new lock, and possible upgrades.

The figures live in `data/drivers/versions.toml`, each with its source.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path

from rigup.lock import LockedCudaToolkit, LockedDriver
from rigup.units import Frozen

FILE = Path(__file__).parent / "data" / "drivers" / "versions.toml"


class DriverVersions(Frozen):
    """Versions of the driver, ascending."""

    default: str
    versions: tuple[str, ...]
    source: str


class CudaToolkit(LockedCudaToolkit):
    """One release of the toolkit, as in the lock."""

    source: str


class NvidiaVersions(Frozen):
    """All known versions; toolkits ascend, and the last one is the default."""

    driver: DriverVersions
    cuda_toolkits: tuple[CudaToolkit, ...]

    def driver_version(self, wanted: str | None = None) -> str | None:
        """A full version as given, the newest known one of a branch ("590"), or the default; None if unknown."""
        if wanted is None:
            return self.driver.default
        if "." in wanted:
            return wanted
        return next((v for v in reversed(self.driver.versions) if v.partition(".")[0] == wanted), None)

    def cuda_toolkit(self, wanted: str | None = None) -> LockedCudaToolkit | None:
        """A release by its version, or the default; None if it is unknown."""
        known = {toolkit.version: toolkit for toolkit in self.cuda_toolkits}
        found = known.get(wanted or self.cuda_toolkits[-1].version)
        return found and LockedCudaToolkit(version=found.version, packages=found.packages)


def locked_driver(version: str) -> LockedDriver:
    """A version with its branch."""
    return LockedDriver(version=version, branch=version.partition(".")[0])


@lru_cache(maxsize=1)
def nvidia_versions() -> NvidiaVersions:
    """Reads the toolkit's file."""
    return NvidiaVersions.model_validate(tomllib.loads(FILE.read_text()))
