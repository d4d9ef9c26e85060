"""`rigup lock --upgrade NAME[=VERSION]`: finds the entries of a lock that it names, and their new versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rigup.catalogue.catalogue import FOLDER, Catalogue
from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.catalogue.engine_files import EngineChange
from rigup.catalogue.engines import EngineRelease
from rigup.catalogue.versions import listed_version
from rigup.errors import InputError
from rigup.lock import Lock
from rigup.lockfile.needs import BuildName, Name, Needs
from rigup.plan import Plan
from rigup.planner.inputs.validation import suggestion
from rigup.project.inventory_edit import FileEdit
from rigup.regular_files import toml_tables, toml_value

DRIVER, CUDA_TOOLKIT, UV, SMG, MOE_CONFIGS, EVAL = "driver", "cuda-toolkit", "uv", "smg", "moe-configs", "eval"
NCCL = "nccl"
NAMES = (DRIVER, CUDA_TOOLKIT, UV, SMG, NCCL, MOE_CONFIGS, EVAL)

AnyName = TypeVar("AnyName", Name, BuildName)


@dataclass(frozen=True)
class Upgrade:
    """One item to move: a repository, an engine, `driver`, `cuda-toolkit`, `uv`, `smg` or `nccl`.

    `moe-configs` pins the current files of tuned kernels, `eval` the harness of `rigup eval` for this machine.
    """

    name: str
    version: str | None = None

    @classmethod
    def read(cls, text: str) -> Upgrade:
        """Parses NAME or NAME=VERSION. Raises InputError for anything else."""
        name, given, version = text.partition("=")
        if not name or (given and not version):
            raise InputError(
                f'--upgrade: "{text}" is not NAME or NAME=VERSION', "write it like --upgrade driver=580.178.04"
            )
        return cls(name.strip(), version.strip() or None)

    def __str__(self) -> str:
        return f"--upgrade {self.name}" + (f"={self.version}" if self.version else "")


def with_upgraded_nvidia(upgrade: Upgrade, lock: Lock) -> Lock | None:
    """The lock with another driver or toolkit, or None if the upgrade names something else."""
    if upgrade.name == DRIVER:
        version = nvidia_versions().driver_version(upgrade.version)
        if version is None:
            raise InputError(
                f"{upgrade}: the catalogue has no version of branch {upgrade.version}",
                "give the full version, such as 580.178.04",
            )
        try:
            return lock.model_copy(update={"driver": locked_driver(version)})
        except ValidationError:
            raise InputError(f"{upgrade}: not an NVIDIA driver version", "write it like 580.178.04, or 580") from None
    if upgrade.name == CUDA_TOOLKIT:
        toolkit = nvidia_versions().cuda_toolkit(upgrade.version)
        if toolkit is None:
            known = ", ".join(entry.version for entry in nvidia_versions().cuda_toolkits)
            raise InputError(f"{upgrade}: the catalogue does not have this toolkit release", f"choose from: {known}")
        return lock.model_copy(update={"cuda_toolkit": toolkit})
    return None


def unlisted_release(upgrade: Upgrade, catalogue: Catalogue) -> EngineChange | None:
    """The build of llama.cpp that an upgrade names and the catalogue does not have; None for anything else.

    It is compiled with the CUDA of the newest release before it.
    """
    engine = catalogue.engines_by_name.get(upgrade.name)
    if (
        engine is None
        or upgrade.version is None
        or engine.version(upgrade.version)
        or not engine.can_add(upgrade.version)
    ):
        return None
    like = engine.version(listed_version(upgrade.version, tuple(release.version for release in engine.versions)))
    assert like is not None
    release = EngineRelease(version=upgrade.version, cuda=like.cuda)
    return EngineChange(name=engine.name, versions=(release,))


def release_edit(root: Path, change: EngineChange) -> FileEdit:
    """The file of a fleet's catalogue that adds a release."""
    (release,) = change.versions
    comment = f"# Written by rigup lock --upgrade {change.name}={release.version}. cuda: that of the release before it."
    versions = [{"version": release.version, "cuda": release.cuda or None}]
    blocks = [f"{comment}\nname = {toml_value(change.name)}", *toml_tables("versions", versions, ())]
    path = root / FOLDER / "engines" / f"{change.name}-{release.version}.toml"
    return FileEdit(path, "\n\n".join(blocks) + "\n", "new")


def is_engine(upgrade: Upgrade, catalogue: Catalogue) -> bool:
    """Whether an upgrade names an engine. Raises InputError if the engine does not have this version."""
    engine = catalogue.engines_by_name.get(upgrade.name)
    if engine is not None and engine.version(upgrade.version) is None:
        hint = engine.other_versions(str(upgrade.version))
        raise InputError(f"{upgrade}: {engine.title} {upgrade.version} is not supported", hint)
    return engine is not None


def with_chosen_version(upgrade: Upgrade, lock: Lock, needs: Needs) -> Lock:
    """The lock with a default version of an engine; without a version, the catalogue's default applies again."""
    if upgrade.name not in needs.free:
        return lock
    chosen = {name: version for name, version in lock.engines.items() if name != upgrade.name}
    if upgrade.version is not None:
        chosen |= {name: upgrade.version for name in needs.free if name == upgrade.name}
    return lock.model_copy(update={"engines": chosen})


def upgraded_builds(upgrade: Upgrade, needs: Needs) -> Needs:
    """The needs with those builds alone that an upgrade of an engine concerns. Raises InputError if there are none."""

    def meant(plans: dict[AnyName, Plan]) -> dict[AnyName, Plan]:
        names = [name for name in sorted(plans) if name[0] == upgrade.name and upgrade.version in (None, name[1])]
        return {name: plans[name] for name in names}

    sources, environments, images = meant(needs.sources), meant(needs.environments), meant(needs.images)
    found = replace(needs, sources=sources, environments=environments, images=images)
    if found.sources or found.environments or found.images:
        return found
    names = (*needs.sources, *needs.environments, *needs.images)
    used = sorted({name[1] for name in names if name[0] == upgrade.name})
    if used:
        raise InputError(
            f"{upgrade}: no service uses this version; services use {', '.join(used)}",
            f'set "version": "{upgrade.version}" in the service, then run rigup lock',
        )
    raise InputError(f"{upgrade}: no service uses {upgrade.name}", "see what each service uses: rigup plan")


def upgraded_checkpoints(upgrade: Upgrade, needs: Needs, lock: Lock, catalogue: Catalogue) -> tuple[Name, ...]:
    """Every locked or needed quantisation of the named repository. They share a revision, so they move together."""
    catalogued = {(entry.repo, entry.quant) for entry in catalogue.checkpoints}
    locked = {entry.name for entry in lock.checkpoints} & catalogued
    names = locked | set(needs.checkpoints)
    found = tuple(sorted(name for name in names if name[0].lower() == upgrade.name.lower()))
    if not found:
        builds = (*needs.sources, *needs.environments, *needs.images)
        known = {repo for repo, _ in names} | {name[0] for name in builds} | set(NAMES)
        raise InputError(
            f"{upgrade}: nothing with that name is locked or used by a service", suggestion(upgrade.name, known)
        )
    return found
