"""Reads the files that describe engines: the toolkit's, and a fleet's, which hold only what they add or change."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from rigup.artifacts import WheelLibrary
from rigup.catalogue.abilities import KINDS, Abilities, Addition
from rigup.catalogue.data_files import DATA, validated
from rigup.catalogue.engine_facts import (
    CudaNeeds,
    CutTowers,
    EnvironmentRecipe,
    FormatSupport,
    Image,
    KnownBad,
    KvCacheTypes,
    MistralFormat,
    OwnCacheType,
    PositionTables,
    Recipe,
    Repacking,
    RpcRecipe,
    StageEmbeddings,
    UnscaledCache,
    WholeEmbeddings,
)
from rigup.catalogue.engines import Engine, EngineRelease, EngineVersion
from rigup.catalogue.versions import of_release, version_key
from rigup.errors import InputError
from rigup.regular_files import read_text, toml_of
from rigup.service import BuildMethod, EngineName
from rigup.units import Frozen

FILES = tuple(DATA / "engines" / name for name in ("llama_cpp.toml", "sglang.toml", "vllm.toml"))
_HINT = "compare with the toolkit's own engine files and docs/catalogue.md"
_TOML_HINT = "write it as TOML, like the toolkit's own engine files"


class EngineChange(Frozen):
    """What a file adds to an engine or changes of it. Of facts of one kind, the first that holds for a release counts.

    cuda: by major version. archive, archive_root: defaults for releases without their own; {version} stands for the
    release. architectures to reasoning_parsers: beyond what rigup has read from the engine's packages.
    """

    name: EngineName
    title: str | None = None
    default_version: str | None = None
    source: str | None = None
    method: BuildMethod | None = None
    versions: tuple[EngineRelease, ...] = ()
    formats: tuple[FormatSupport, ...] = ()
    mistral_format: tuple[MistralFormat, ...] = ()
    kv_cache_types: tuple[KvCacheTypes, ...] = ()
    own_cache_types: tuple[OwnCacheType, ...] = ()
    unscaled_caches: tuple[UnscaledCache, ...] = ()
    repacking: tuple[Repacking, ...] = ()
    cut_towers: tuple[CutTowers, ...] = ()
    position_tables: tuple[PositionTables, ...] = ()
    whole_embeddings: tuple[WholeEmbeddings, ...] = ()
    stage_embeddings: tuple[StageEmbeddings, ...] = ()
    known_bad: tuple[KnownBad, ...] = ()
    cuda: dict[str, CudaNeeds] = {}
    recipes: dict[Literal["cpu", "cuda"], Recipe] = {}
    rpc: RpcRecipe | None = None
    nccl: WheelLibrary | None = None
    archive: str | None = None
    archive_root: str = ""
    images: tuple[Image, ...] = ()
    environments: tuple[EnvironmentRecipe, ...] = ()
    architectures: tuple[Addition, ...] = ()
    conversions: tuple[Addition, ...] = ()
    layer_split_only: tuple[Addition, ...] = ()
    quantizations: tuple[Addition, ...] = ()
    tool_parsers: tuple[Addition, ...] = ()
    reasoning_parsers: tuple[Addition, ...] = ()

    def laid_over(self, engine: "EngineFile") -> "EngineFile":
        """The engine with this: releases by version, other facts before those that it has, single values replaced."""
        changed: dict[str, Any] = {}
        for field in self.model_fields_set:
            new, old = getattr(self, field), getattr(engine, field)
            if field == "versions":
                named = {release.version for release in new}
                new = (*(release for release in old if release.version not in named), *new)
            elif isinstance(new, tuple):
                new = (*new, *old)
            elif isinstance(new, dict):
                new = {**old, **new}
            changed[field] = new
        return engine.model_copy(update=changed)


class EngineFile(EngineChange):
    """An engine with everything that the first file about it must say."""

    title: str
    default_version: str
    source: str
    method: BuildMethod
    versions: tuple[EngineRelease, ...]
    formats: tuple[FormatSupport, ...]
    kv_cache_types: tuple[KvCacheTypes, ...]

    def resolved(self) -> Engine:
        """The engine with its releases, each with the facts that apply to it."""
        releases = sorted(self.versions, key=lambda release: version_key(release.version))
        return Engine(
            name=self.name,
            title=self.title,
            default_version=self.default_version,
            method=self.method,
            versions=tuple(self._resolved(release) for release in releases),
        )

    def _resolved(self, release: EngineRelease) -> EngineVersion:
        version = release.version
        types = next((known.names for known in self.kv_cache_types if known.holds(version)), {})
        if release.archive is None and self.archive is not None:
            release = release.model_copy(update={"archive": self.archive, "archive_root": self.archive_root})
            release = of_release(release, version, "archive", "archive_root")
        added = {
            kind: {one.name: one.source for one in getattr(self, kind) if one.holds(version)}
            for kind in KINDS
            if getattr(self, kind)
        }
        return EngineVersion(
            **dict(release),
            engine=self.name,
            title=self.title,
            method=self.method,
            abilities=Abilities(engine=self.name, version=version, added=added),
            formats=tuple(known for known in self.formats if known.holds(version)),
            mistral_format=next((known for known in self.mistral_format if known.holds(version)), None),
            kv_cache_types=types,
            own_cache_types=tuple(known for known in self.own_cache_types if known.holds(version)),
            unscaled_caches=tuple(known for known in self.unscaled_caches if known.holds(version)),
            repacking=tuple(known for known in self.repacking if known.holds(version)),
            cut_towers=tuple(known for known in self.cut_towers if known.holds(version)),
            position_tables=tuple(known for known in self.position_tables if known.holds(version)),
            whole_embeddings=tuple(known for known in self.whole_embeddings if known.holds(version)),
            stage_embeddings=tuple(known for known in self.stage_embeddings if known.holds(version)),
            known_bad=tuple(known for known in self.known_bad if version in known.versions),
            cuda_needs=self.cuda.get(release.cuda.partition(".")[0]) if release.cuda else None,
            recipes=self.recipes,
            rpc=self.rpc,
            nccl=self.nccl if self.nccl and (release.cuda or "").startswith(f"{self.nccl.cuda}.") else None,
            images=tuple(of_release(known, version, "tag") for known in self.images if known.holds(version)),
            environments=tuple(
                of_release(known, version, "indexes", "provides") for known in self.environments if known.holds(version)
            ),
            source=self.source,
        )


def load_engines(paths: Iterable[Path] = FILES, changes: Iterable[EngineChange] = ()) -> tuple[Engine, ...]:
    """Reads engine files in order; a later file is laid over an earlier one of the same engine, `changes` over all.

    Raises InputError with the file, the key and the problem.
    """
    files: dict[str, EngineFile] = {}
    for path in paths:
        data = toml_of(path, read_text(path), _TOML_HINT)
        there = files.get(str(data.get("name")))
        if there is None:
            found = validated(EngineFile, data, path, _HINT)
        else:
            found = validated(EngineChange, data, path, _HINT).laid_over(there)
        if found.default_version not in {release.version for release in found.versions}:
            raise InputError(
                f"{path}: default_version: {found.default_version} is not in versions",
                "choose one of the versions in the file",
            )
        files[found.name] = found
    for change in changes:
        files[change.name] = change.laid_over(files[change.name])
    return tuple(file.resolved() for file in files.values())
