"""Lists which packages changed between two locks, for each environment. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from rigup.artifacts import LockedEnvironment
from rigup.catalogue.versions import version_key
from rigup.lock import Lock
from rigup.lockfile.needs import build_label


@dataclass(frozen=True)
class PackageMove:
    """One changed package. before: its old version, None if it is new. after: its new version, None if it is gone.

    With equal versions, another file of the same release is locked.
    """

    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return f"{'+' if self.before is None else '-'} {self.name} {self.after or self.before}"
        return f"{self.name} {self.before} -> {self.after}"


def package_moves(before: Lock, after: Lock) -> dict[str, tuple[tuple[PackageMove, ...], str]]:
    """For each new or changed environment, by label: its changed packages, and the environment compared with."""
    found = {}
    for environment in after.environments:
        earlier = _predecessor(before, environment)
        if earlier is not None and earlier != environment:
            found[build_label(environment.name)] = (_moves(earlier, environment), build_label(earlier.name))
    return found


def package_versions(environment: LockedEnvironment) -> dict[str, str]:
    """Maps package name to version, for an environment."""
    found: dict[str, str] = {}
    for file in environment.files:
        try:
            name, version, _, _ = parse_wheel_filename(file)
        except InvalidWheelFilename:
            name, version = file, ""  # type: ignore[assignment]  # a lock edited by hand
        found[str(name)] = str(version)
    return found


def _predecessor(lock: Lock, environment: LockedEnvironment) -> LockedEnvironment | None:
    """The environment to compare with: the same one before, otherwise the engine's newest for equal machines."""
    there = lock.environment(*environment.name)
    if there is not None:
        return there
    kind = (environment.engine, environment.variant, environment.architecture)
    others = [e for e in lock.environments if (e.engine, e.variant, e.architecture) == kind]
    return max(others, key=lambda entry: version_key(entry.version), default=None)


def _moves(before: LockedEnvironment, after: LockedEnvironment) -> tuple[PackageMove, ...]:
    old, new = package_versions(before), package_versions(after)
    files = set(before.files.items()) ^ set(after.files.items())
    other = {str(name) for name in package_versions(after.model_copy(update={"files": dict(files)}))}
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name) or name in other)
    return tuple(PackageMove(name, old.get(name), new.get(name)) for name in names)
