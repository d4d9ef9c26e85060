"""What the lock adds to a request: the real sizes of a checkpoint's files, and the engine versions that it chose."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.errors import InputError
from rigup.lock import Lock, LockedCheckpoint
from rigup.planner.enumeration import PlanningRequest
from rigup.planner.inputs.names import ResolvedNames, resolve
from rigup.rig import Rig
from rigup.service import Service

_WEIGHT_FILES = (".gguf", ".safetensors")
# What a checkpoint's own files say, and the catalogue may not know.
_READ = ("template_tools", "kv_cache_type", "context")


def planning_request(rig: Rig, service: Service, catalogue: Catalogue, lock: Lock, path: str = "") -> PlanningRequest:
    """The planner's request for a service on a rig under a lock. Raises InputError as `resolve` does."""
    resolved = resolve(service, rig, with_chosen_versions(catalogue, lock), path)
    return PlanningRequest(rig, service, with_locked_sizes(resolved, lock), catalogue, lock)


def with_chosen_versions(catalogue: Catalogue, lock: Lock) -> Catalogue:
    """The catalogue with the lock's engine versions as defaults. Raises InputError for an unknown version."""
    return _with_defaults(catalogue, tuple(sorted(lock.engines.items()))) if lock.engines else catalogue


@lru_cache(maxsize=8)
def _with_defaults(catalogue: Catalogue, chosen: tuple[tuple[str, str], ...]) -> Catalogue:
    versions, engines = dict(chosen), []
    for engine in catalogue.engines:
        version = versions.get(engine.name, engine.default_version)
        if engine.version(version) is None:
            raise InputError(
                f"rigup.lock: engines.{engine.name}: {engine.title} {version} is not supported",
                engine.other_versions(version),
            )
        engines.append(engine.model_copy(update={"default_version": version}))
    return replace(catalogue, engines=tuple(engines))


def with_locked_sizes(resolved: ResolvedNames, lock: Lock) -> ResolvedNames:
    """The same choices with the locked size of each checkpoint's weight files instead of the catalogue's."""
    if not lock.checkpoints:
        return resolved
    draft = resolved.draft_model or resolved.model
    checkpoints = tuple(_measured(entry, resolved.model.layers, lock) for entry in resolved.checkpoints)
    drafts = tuple(_measured(entry, draft.layers, lock) for entry in resolved.drafts)
    return resolved._replace(checkpoints=checkpoints, drafts=drafts)


def _measured(entry: CheckpointEntry, layers: int, lock: Lock) -> CheckpointEntry:
    locked = lock.checkpoint(entry.repo, entry.quant)
    if locked:
        read = {key: value for key in _READ if (value := getattr(locked, key)) is not None}
        entry = entry.model_copy(update=read) if read else entry
    size = sum(file.size for file in locked.files if file.path.endswith(_WEIGHT_FILES)) if locked else 0
    table = locked.read_tensors if locked else None
    if table is not None and (len(table.by_layer) != layers or table.total > size):
        table = None  # read for another model than the catalogue has now, which rigup lock --upgrade mends
    if not size or (size == entry.bytes and table is None):
        return entry
    return entry.measured(size, table, "rigup.lock")


def entry_of(entry: CheckpointEntry, locked: LockedCheckpoint | None) -> str:
    """The file to pass to the engine: the first GGUF in the lock, otherwise the catalogue's entry."""
    if entry.scheme != "gguf" or locked is None:
        return entry.entry
    files = sorted(file.path for file in locked.files if file.path.endswith(".gguf"))
    return files[0] if files else entry.entry
