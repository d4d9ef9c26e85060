"""`rigup lock --upgrade NAME[=VERSION]`: which entries of a lock it means, and what they are to become."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from rigup.catalogue import Catalogue
from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.errors import InputError
from rigup.fleet.lock_needs import BuildName, Name, Needs
from rigup.lock import Lock
from rigup.planner.complaints import suggestion

DRIVER, CUDA_TOOLKIT, MOE_CONFIGS = "driver", "cuda-toolkit", "moe-configs"


@dataclass(frozen=True)
class Upgrade:
    """One thing to move: a repository, an engine, `driver` or `cuda-toolkit`; no version means the newest known.

    `moe-configs` takes the tuned kernels as their files are now.
    """

    name: str
    version: str | None = None

    @classmethod
    def read(cls, text: str) -> Upgrade:
        """NAME or NAME=VERSION. Raises InputError for anything else."""
        name, given, version = text.partition("=")
        if not name or (given and not version):
            raise InputError(f'--upgrade: "{text}" is not NAME or NAME=VERSION', "e.g. --upgrade driver=580.178.04")
        return cls(name.strip(), version.strip() or None)

    def __str__(self) -> str:
        return f"--upgrade {self.name}" + (f"={self.version}" if self.version else "")


def with_upgraded_nvidia(upgrade: Upgrade, lock: Lock) -> Lock | None:
    """The lock with another driver or toolkit, or None if the upgrade is of something else."""
    if upgrade.name == DRIVER:
        version = nvidia_versions().driver_version(upgrade.version)
        if version is None:
            raise InputError(
                f"{upgrade}: no version of branch {upgrade.version} is known here", "name the whole version: 580.178.04"
            )
        try:
            return lock.model_copy(update={"driver": locked_driver(version)})
        except ValidationError:
            raise InputError(f"{upgrade}: not a version of NVIDIA's driver", "e.g. 580.178.04, or 580") from None
    if upgrade.name == CUDA_TOOLKIT:
        toolkit = nvidia_versions().cuda_toolkit(upgrade.version)
        if toolkit is None:
            known = ", ".join(entry.version for entry in nvidia_versions().cuda_toolkits)
            raise InputError(f"{upgrade}: this release of the toolkit is not known here", f"known: {known}")
        return lock.model_copy(update={"cuda_toolkit": toolkit})
    return None


def upgraded_images(upgrade: Upgrade, needs: Needs) -> tuple[BuildName, ...]:
    """The images in use that an upgrade means: their tags are looked up anew; () if it is not of an engine."""
    return tuple(
        name for name in sorted(needs.images) if name[0] == upgrade.name and upgrade.version in (None, name[1])
    )


def upgraded_sources(upgrade: Upgrade, needs: Needs, catalogue: Catalogue, others: bool = False) -> tuple[Name, ...]:
    """The source archives that an upgrade means; () if it is not of an engine.

    others: whether the upgrade means other builds of the engine, so that archives are not missed.
    """
    engine = next((e for e in catalogue.engines if e.name == upgrade.name), None)
    if engine is None:
        return ()
    if engine.version(upgrade.version) is None:
        known = ", ".join(release.version for release in engine.versions)
        raise InputError(f"{upgrade}: {engine.title} {upgrade.version} is not supported", f"versions: {known}")
    used = [name for name in sorted(needs.sources) if name[0] == engine.name]
    found = tuple(name for name in used if upgrade.version in (None, name[1]))
    if found or others:
        return found
    if used:
        raise InputError(
            f"{upgrade}: no service uses this version, but {', '.join(version for _, version in used)}",
            f'write "version": "{upgrade.version}" in the service, then rigup lock',
        )
    raise InputError(f"{upgrade}: no service uses it from source", "only source archives of engines can be locked yet")


def upgraded_checkpoints(upgrade: Upgrade, needs: Needs, lock: Lock, catalogue: Catalogue) -> tuple[Name, ...]:
    """Every locked or needed quantisation of the named repository: they share a revision, so they move as one."""
    catalogued = {(entry.repo, entry.quant) for entry in catalogue.checkpoints}
    locked = {(entry.repo, entry.quant) for entry in lock.checkpoints} & catalogued
    names = locked | set(needs.checkpoints)
    found = tuple(sorted(name for name in names if name[0].lower() == upgrade.name.lower()))
    if not found:
        known = {repo for repo, _ in names} | {engine for engine, _ in needs.sources} | {DRIVER, CUDA_TOOLKIT}
        raise InputError(
            f"{upgrade}: nothing of that name is locked or used by a service", suggestion(upgrade.name, known)
        )
    return found
