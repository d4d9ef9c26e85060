"""The catalogue: the toolkit's data files, overridden by those of a fleet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TypeVar

from rigup.catalogue.abilities import AbilityList
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.data_files import DATA, read_entries, read_lists
from rigup.catalogue.engine_files import FILES, EngineChange, load_engines
from rigup.catalogue.engines import Engine
from rigup.catalogue.gpu_names import GpuEntry
from rigup.catalogue.model import Model
from rigup.catalogue.moe_configs import FOLDER as MOE_CONFIGS
from rigup.catalogue.moe_configs import TOOLKIT as TOOLKIT_MOE_CONFIGS
from rigup.catalogue.moe_configs import MoeConfigFile, load_moe_configs
from rigup.catalogue.option_names import NameList
from rigup.catalogue.overheads import FOLDER as OVERHEADS
from rigup.catalogue.overheads import TABLE, MeasuredOverhead
from rigup.catalogue.quality import FOLDER as QUALITIES
from rigup.catalogue.quality import TABLE as QUALITY
from rigup.catalogue.quality import Quality
from rigup.errors import InputError
from rigup.regular_files import files_in
from rigup.rig import Gpu

FOLDER = "catalogue"
NAME_LISTS = "engines/flags"
ABILITY_LISTS = "engines/abilities"

Item = TypeVar("Item", Gpu, Model, CheckpointEntry)


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All known GPUs, models, checkpoints and engines. EAGLE heads are models, too: see `served`.

    GPUs are found by key or name, models by name, checkpoints by repository and quantisation.
    """

    gpus: tuple[Gpu, ...]
    models: tuple[Model, ...]
    checkpoints: tuple[CheckpointEntry, ...]
    engines: tuple[Engine, ...]
    moe_configs: tuple[MoeConfigFile, ...] = ()
    name_lists: tuple[NameList, ...] = ()
    ability_lists: tuple[AbilityList, ...] = ()
    overheads: tuple[MeasuredOverhead, ...] = ()
    qualities: tuple[Quality, ...] = ()

    @cached_property
    def models_by_name(self) -> dict[str, Model]:
        """Models by name."""
        return {model.name: model for model in self.models}

    @cached_property
    def served(self) -> tuple[Model, ...]:
        """The models that a service can serve: all but EAGLE heads, which draft for others."""
        return tuple(model for model in self.models if not model.head)

    @cached_property
    def engines_by_name(self) -> dict[str, Engine]:
        """Engines by name."""
        return {engine.name: engine for engine in self.engines}

    @cached_property
    def checkpoints_by_model(self) -> dict[str, tuple[CheckpointEntry, ...]]:
        """The checkpoints of each model, in the catalogue's order.

        Those at a location of their own count only for a model that has no others: a path is not on every host, and
        files in Ollama's registry say themselves of which model they are.
        """
        found: dict[str, list[CheckpointEntry]] = {}
        for checkpoint in self.checkpoints:
            found.setdefault(checkpoint.model, []).append(checkpoint)
        return {
            name: tuple(entry for entry in entries if not entry.location) or tuple(entries)
            for name, entries in found.items()
        }

    def with_release(self, fleet: Path, change: EngineChange) -> Catalogue:
        """The same with what one more file in a fleet's folder would change of an engine."""
        own = files_in(fleet / FOLDER / "engines", ".toml")
        changed = replace(self, engines=load_engines((*FILES, *own), (change,)), ability_lists=())
        return changed.with_ability_lists(self.ability_lists)

    def with_ability_lists(self, lists: tuple[AbilityList, ...]) -> Catalogue:
        """The same with these lists, read by a fleet, of what engines can serve."""
        if lists == self.ability_lists:
            return self
        engines = tuple(engine.with_lists(lists) for engine in self.engines)
        return replace(self, engines=engines, ability_lists=lists)


def load_catalogue(fleet: Path | None = None, models: Collection[str] | None = None) -> Catalogue:
    """Reads the toolkit's files and those under `<fleet>/catalogue/`, which replace entries of the same name.

    Tuned kernels under `<fleet>/files/moe_configs/` replace the toolkit's in the same way.
    models: names of the only models that are wanted, in any case; of the toolkit's other models, files are not read.
    Raises InputError with the file, the entry and the key that is wrong.
    """
    own = fleet / FOLDER if fleet else None
    checkpoints = read_entries(own / "checkpoints", "checkpoint", CheckpointEntry) if own else ()
    if models is not None:
        models = {*models, *(checkpoint.model for checkpoint in checkpoints)}
    toolkit = _toolkit(models if models is None else frozenset(map(file_stem, models)))
    if fleet is None or own is None:
        return toolkit
    tuned = fleet / MOE_CONFIGS
    if tuned.is_dir() and tuned.resolve() != TOOLKIT_MOE_CONFIGS:
        toolkit = replace(toolkit, moe_configs=load_moe_configs(TOOLKIT_MOE_CONFIGS, tuned))
    return _laid_over(toolkit, own, checkpoints) if own.is_dir() else toolkit


def file_stem(model: str) -> str:
    """What the names of a model's files begin with, or a family's file in their place: MiniMax-M2.5, minimax_m2_5."""
    return re.sub(r"[^a-z0-9]+", "_", model.lower())


@lru_cache(maxsize=2)
def _toolkit(stems: frozenset[str] | None) -> Catalogue:
    def wanted(file: str) -> bool:
        return stems is None or any(file.startswith(stem) or stem.startswith(file) for stem in stems)

    gpus = tuple(entry.gpu() for entry in read_entries(DATA / "gpus", "gpu", GpuEntry))
    models = read_entries(DATA / "models", "model", Model, wanted)
    checkpoints = read_entries(DATA / "checkpoints", "checkpoint", CheckpointEntry, wanted)
    return Catalogue(gpus, models, checkpoints, load_engines(), load_moe_configs(TOOLKIT_MOE_CONFIGS))


def _laid_over(toolkit: Catalogue, folder: Path, checkpoints: tuple[CheckpointEntry, ...]) -> Catalogue:
    gpus = (entry.gpu() for entry in read_entries(folder / "gpus", "gpu", GpuEntry))
    models = read_entries(folder / "models", "model", Model)
    engine_files = files_in(folder / "engines", ".toml")
    catalogue = Catalogue(
        _replaced(toolkit.gpus, gpus),
        _replaced(toolkit.models, models),
        _replaced(toolkit.checkpoints, checkpoints),
        load_engines((*FILES, *engine_files)) if engine_files else toolkit.engines,
        toolkit.moe_configs,
        read_lists(folder / NAME_LISTS, NameList),
        overheads=read_entries(folder / OVERHEADS, TABLE, MeasuredOverhead),
        qualities=read_entries(folder / QUALITIES, QUALITY, Quality),
    ).with_ability_lists(read_lists(folder / ABILITY_LISTS, AbilityList))
    for checkpoint in checkpoints:
        if checkpoint.model not in catalogue.models_by_name:
            known = ", ".join(sorted(catalogue.models_by_name))
            raise InputError(
                f'{folder}/checkpoints: {checkpoint.label}: unknown model "{checkpoint.model}"', f"choose from: {known}"
            )
    return catalogue


def _replaced(old: tuple[Item, ...], new: Iterable[Item]) -> tuple[Item, ...]:
    merged = {_identity(item): item for item in old}
    merged.update({_identity(item): item for item in new})
    return tuple(merged.values())


def _identity(item: Gpu | Model | CheckpointEntry) -> tuple[str, ...]:
    if isinstance(item, CheckpointEntry):
        return (item.repo, item.quant)
    return (item.name,)
