"""Known versions of NVIDIA's driver and CUDA toolkit: the defaults of a new lock, possible upgrades, ends of support.

The figures live in `data/drivers/versions.toml`, each with its source.
"""

from datetime import date
from functools import cache

from rigup.catalogue.data_files import toolkit_facts
from rigup.lock import LockedCudaToolkit, LockedDriver
from rigup.units import Frozen


class DriverVersions(Frozen):
    """Versions of the driver, ascending."""

    default: str
    versions: tuple[str, ...]
    source: str


class Branch(Frozen):
    """One branch of the driver; the file explains each field."""

    branch: int
    kind: str
    until: date | None = None
    ended: bool = False
    cuda: str
    from_version: str = ""
    since: str
    source: str

    @property
    def support(self) -> str:
        """Its kind and the end of its support: "production, supported until March 2027"."""
        if self.until is not None:
            return f"{self.kind}, supported until {self.until:%B %Y}"
        return f"{self.kind}, no longer supported" if self.ended else self.kind


class CudaToolkit(LockedCudaToolkit):
    """One release of the toolkit, as in the lock. fault: what is wrong in it, "" if nothing is known."""

    fault: str = ""
    source: str


class NvidiaVersions(Frozen):
    """All known versions, ascending."""

    default_toolkit: str
    driver: DriverVersions
    branches: tuple[Branch, ...]
    cuda_toolkits: tuple[CudaToolkit, ...]

    def driver_version(self, wanted: str | None = None) -> str | None:
        """A full version as given, the newest known one of a branch ("590"), or the default; None if unknown."""
        if wanted is None:
            return self.driver.default
        if "." in wanted:
            return wanted
        return next((v for v in reversed(self.driver.versions) if v.partition(".")[0] == wanted), None)

    def branch(self, number: int) -> Branch | None:
        """A branch by its number; None if the catalogue lacks it."""
        return next((known for known in self.branches if known.branch == number), None)

    def cuda_toolkit(self, wanted: str | None = None) -> LockedCudaToolkit | None:
        """A release by its version, the newest known one of a series ("13.3"), or the default; None if unknown."""
        newest = self._newest_toolkit(wanted or self.default_toolkit)
        return LockedCudaToolkit(version=newest.version, packages=newest.packages) if newest else None

    def faulty_toolkit(self, version: str) -> CudaToolkit | None:
        """The newest known release of this version or series ("13.2") if it has a fault, otherwise None."""
        newest = self._newest_toolkit(version)
        return newest if newest and newest.fault else None

    def _newest_toolkit(self, wanted: str) -> CudaToolkit | None:
        found = (t for t in reversed(self.cuda_toolkits) if f"{t.version}.".startswith(f"{wanted}."))
        return next(found, None)

    def sound_toolkit_after(self, version: str) -> CudaToolkit | None:
        """The first known release after this one without a fault; None if there is none."""
        later = self.cuda_toolkits[[t.version for t in self.cuda_toolkits].index(version) + 1 :]
        return next((t for t in later if not t.fault), None)


def locked_driver(version: str) -> LockedDriver:
    """A version with its branch."""
    return LockedDriver(version=version, branch=version.partition(".")[0])


@cache
def nvidia_versions() -> NvidiaVersions:
    """Reads the toolkit's file."""
    return toolkit_facts("drivers/versions.toml", NvidiaVersions)
