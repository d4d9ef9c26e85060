"""Replaces entries of a lock, and describes the changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from rigup.artifacts import LockedEnvironment, LockedHarness, LockedImage
from rigup.lock import Lock, LockedCheckpoint, LockedSource
from rigup.lockfile.needs import build_label
from rigup.lockfile.package_diff import PackageMove, package_moves
from rigup.units import bytes_text

Entry = LockedCheckpoint | LockedSource | LockedEnvironment | LockedImage | LockedHarness


@dataclass(frozen=True)
class EntryChange:
    """One changed entry. before: what the old lock pins, None if it lacks the entry. after: the same for the new lock.

    packages: the packages that changed in a Python environment. against: the environment that it is compared with.
    """

    name: str
    before: str | None
    after: str | None
    packages: tuple[PackageMove, ...] = ()
    against: str | None = None

    @property
    def kind(self) -> Literal["added", "moved", "dropped"]:
        """Whether the entry was added, moved or dropped."""
        if self.before is None:
            return "added"
        return "moved" if self.after is not None else "dropped"


def changes(before: Lock, after: Lock) -> tuple[EntryChange, ...]:
    """The differences between two locks, sorted by name."""
    old, new = _pins(before), _pins(after)
    moved = package_moves(before, after)
    return tuple(
        EntryChange(
            name,
            old[name][1] if name in old else None,
            new[name][1] if name in new else None,
            *moved.get(name.removeprefix("environment "), ((), None)),
        )
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def with_entries(lock: Lock, **entries: Iterable[Entry]) -> Lock:
    """The lock with these entries, by its field: checkpoints=..., images=...; they replace those of the same name."""
    update = {}
    for field, added in entries.items():
        merged = {entry.name: entry for entry in (*getattr(lock, field), *added)}
        update[field] = tuple(merged[key] for key in sorted(merged))
    return lock.model_copy(update=update)


def with_moe_configs(lock: Lock, entries: Mapping[str, str]) -> Lock:
    """The lock with these tuned kernels, path to sha256; they replace entries of the same path."""
    return lock.model_copy(update={"moe_configs": dict(sorted({**lock.moe_configs, **entries}.items()))})


def _pins(lock: Lock) -> dict[str, tuple[object, str]]:
    """Maps each entry's name to the entry and to a text by which people tell its versions apart."""
    found: dict[str, tuple[object, str]] = {}
    if lock.driver:
        found["driver"] = (lock.driver, lock.driver.version)
    if lock.cuda_toolkit:
        found["cuda-toolkit"] = (lock.cuda_toolkit, lock.cuda_toolkit.version)
    for entry in lock.checkpoints:
        count = f"{len(entry.files)} file{'' if len(entry.files) == 1 else 's'}"
        text = f"{entry.revision[:12]} ({count}, {bytes_text(entry.bytes)})"
        found[f"checkpoint {entry.repo} {entry.quant}"] = (entry, text)
    for source in lock.sources:
        found[f"source {source.engine} {source.version}"] = (source, f"{source.address} sha256 {source.sha256[:12]}")
    found |= {f"engine {name}": (version, version) for name, version in lock.engines.items()}
    if lock.uv:
        found["uv"] = (lock.uv, lock.uv.version)
    if lock.smg:
        found["smg"] = (lock.smg, lock.smg.version)
    if lock.nccl:
        found["nccl"] = (lock.nccl, lock.nccl.version)
    for environment in lock.environments:
        size = f" ({bytes_text(environment.bytes)})" if environment.bytes else ""
        text = f"{len(environment.files)} packages{size}, Python {environment.python}"
        found[f"environment {build_label(environment.name)}"] = (environment, text)
    for image in lock.images:
        found[f"image {build_label(image.name)}"] = (image, f"{image.repository} {image.digest[:19]}")
    for harness in lock.harnesses:
        text = f"lm_eval {harness.version}, {len(harness.files)} packages"
        found[f"eval Python {harness.python} {harness.architecture}"] = (harness, text)
    for path, sha256 in lock.moe_configs.items():
        found[f"moe-config {path}"] = (sha256, f"sha256 {sha256[:12]}")
    return found
