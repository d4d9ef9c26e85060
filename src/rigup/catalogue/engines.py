"""Facts about engines: which versions rigup supports, what each needs from a host, and how it reads each weight format.

The figures live in `data/engines/*.toml`, each with its source. A fleet may add its own file with the same keys.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field, ValidationError

from rigup.artifacts import Variant
from rigup.errors import InputError
from rigup.regular_files import read_text, toml_of
from rigup.service import BuildMethod, EngineName
from rigup.units import Frozen, compute_capability

DATA = Path(__file__).parent / "data" / "engines"
FILES = tuple(DATA / name for name in ("llama_cpp.toml", "sglang.toml", "vllm.toml"))

WeightFormat = Literal["bf16", "fp8", "mxfp8", "nvfp4", "int4", "gguf"]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d+$")]


@functools.cache
def version_key(version: str) -> Version:
    """A key that sorts versions of one engine; llama.cpp's build numbers ("b11434") count as whole numbers."""
    return Version(version.removeprefix("b"))


def _comparable(text: str) -> str:
    try:
        version_key(text)
    except InvalidVersion:
        raise ValueError(f'"{text}" is not a version like "0.33.0" or "b11434"') from None
    return text


VersionText = Annotated[str, AfterValidator(_comparable)]


class Ranged(Frozen):
    """A fact about the versions from `since` (included) to `before` (excluded); without a bound, about all of them."""

    since: VersionText | None = None
    before: VersionText | None = None
    source: str

    def holds(self, version: str) -> bool:
        """Whether the fact applies to this version."""
        key = version_key(version)
        after_start = self.since is None or version_key(self.since) <= key
        return after_start and (self.before is None or key < version_key(self.before))


class FormatSupport(Ranged):
    """How an engine reads one weight format.

    minimum: the lowest compute capability that it runs on; "0.0" means that a CPU is enough.
    native: the lowest one whose tensor cores compute in the format. fallback: what happens below that, and its cost.
    """

    format: WeightFormat
    minimum: Capability
    native: Capability
    fallback: str = ""

    def runs_on(self, capability: str) -> bool:
        """Whether the format works on a GPU of this compute capability at all."""
        return compute_capability(capability) >= compute_capability(self.minimum)

    def native_on(self, capability: str) -> bool:
        """Whether a GPU of this compute capability computes in the format itself."""
        return compute_capability(capability) >= compute_capability(self.native)


class Parsers(Ranged):
    """The names of one engine's parsers for one model family.

    reasoning separates the thinking from the answer; reasoning_inline leaves it in the answer.
    """

    family: str
    tool: str
    reasoning: str
    reasoning_inline: str | None = None


class KvCacheTypes(Ranged):
    """The engine's names for rigup's KV cache types: {"fp8": "fp8_e4m3"}; the engine lacks types without a key."""

    names: dict[str, str]


class KnownBad(Frozen):
    """Versions that are known to fail, with some GPUs (compute capabilities), models (families) or weight formats.

    An empty field means any. refuses: whether rigup refuses to serve, or only warns about a flaw.
    """

    versions: tuple[str, ...]
    compute_capabilities: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    formats: tuple[WeightFormat, ...] = ()
    refuses: bool = True
    message: str
    hint: str
    source: str


class CudaNeeds(Frozen):
    """What one CUDA major version needs: the lowest driver branch and the lowest compute capability."""

    driver: int
    compute_capability: Capability
    source: str


class Image(Ranged):
    """The engine's own container image.

    repository: with its registry. tag: {version} stands for the release. program: replaces the image's entry point,
    which differs between releases; found through the image's PATH.
    """

    variant: Variant = "cuda"
    repository: str
    tag: str
    program: str


class EnvironmentRecipe(Ranged):
    """The recipe for the Python environment of a release.

    project: its name on the package index; the requirement is PROJECT==VERSION. requirements: further ones. ray: the
    requirement that joins hosts with Ray. python, python_from: see `environment.LockedEnvironment`; for a Python from
    uv, the minor version. overrides: requirements that replace those of packages. excludes: packages to leave out.
    indexes: package to the address of its own index; {version} stands for the release.
    provides: further names of the project, with versions. runtime_packages: Debian packages that it needs at run time.
    """

    variant: Variant = "cuda"
    project: str
    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")] = "3.12"
    python_from: Literal["uv", "os"] = "uv"
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    indexes: dict[str, Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]] = {}
    provides: dict[str, str] = {}
    requirements: tuple[str, ...] = ()
    runtime_packages: tuple[str, ...] = ()
    ray: str | None = None


class Recipe(Frozen):
    """How to build an engine from source: CMake flags, targets, and Debian packages for building and running."""

    flags: tuple[str, ...]
    targets: tuple[str, ...]
    packages: tuple[str, ...]
    runtime_packages: tuple[str, ...]
    source: str


class RpcRecipe(Frozen):
    """What a source build needs in addition to its recipe to work across hosts, and the program of the workers."""

    flags: tuple[str, ...]
    targets: tuple[str, ...]
    program: str
    source: str


class EngineRelease(Frozen):
    """One pinned release, as in the file. A release that is built from source has no wheels, Python or torch.

    wheels: file name to sha256. cuda: the version that it is linked against. glibc: the lowest that its wheels accept.
    archive, archive_root: the address of its source archive and the folder in it, as in `lock.LockedSource`.
    """

    version: VersionText
    wheels: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = {}
    python: str | None = None
    torch: str | None = None
    flashinfer: str | None = None
    cuda: str | None = None
    glibc: str | None = None
    archive: str | None = None
    archive_root: str = ""


class EngineVersion(EngineRelease):
    """One release with all facts of the engine that apply to it.

    families: the model families that it supports. cuda_needs: None for a release without CUDA.
    """

    engine: EngineName
    title: str
    method: BuildMethod
    families: frozenset[str]
    formats: tuple[FormatSupport, ...]
    parsers: tuple[Parsers, ...]
    kv_cache_types: dict[str, str]
    known_bad: tuple[KnownBad, ...]
    cuda_needs: CudaNeeds | None
    recipes: dict[Literal["cpu", "cuda"], Recipe]
    rpc: RpcRecipe | None = None
    images: tuple[Image, ...] = ()
    environments: tuple[EnvironmentRecipe, ...] = ()
    source: str

    @property
    def key(self) -> Version:
        """A key for comparing versions of one engine."""
        return version_key(self.version)

    def at_least(self, version: str) -> bool:
        """Whether this is the given release or a later one."""
        return self.key >= version_key(version)

    def support(self, scheme: str) -> FormatSupport | None:
        """How it reads weights of a scheme ("nvfp4", "fp8_block128", "int4_g32"); None if it cannot."""
        weight_format = scheme.partition("_")[0]
        return next((known for known in self.formats if known.format == weight_format), None)

    def parsers_of(self, family: str) -> Parsers | None:
        """Its parser names for a model family; None if it has no parser for the family."""
        return next((known for known in self.parsers if known.family == family), None)

    def kv_cache_name(self, kv_cache_type: str) -> str | None:
        """Its name of a KV cache type ("fp8" is "fp8_e4m3" in SGLang); None if it does not have the type."""
        return self.kv_cache_types.get(kv_cache_type)

    def bad_on(self, capabilities: Iterable[str], family: str, weight_format: str) -> tuple[KnownBad, ...]:
        """Known failures with such a model on any GPU of these compute capabilities, refusals first."""
        found = set(capabilities)
        hits = [
            entry
            for entry in self.known_bad
            if (not entry.compute_capabilities or found & set(entry.compute_capabilities))
            and (not entry.families or family in entry.families)
            and (not entry.formats or weight_format in entry.formats)
        ]
        return tuple(sorted(hits, key=lambda entry: not entry.refuses))

    def image(self, variant: Variant) -> Image | None:
        """Its container image for GPUs or for the CPU, with the tag filled in; None if there is none."""
        found = next((known for known in self.images if known.variant == variant), None)
        return found and found.model_copy(update={"tag": found.tag.replace("{version}", self.version)})

    def environment(self, variant: Variant) -> EnvironmentRecipe | None:
        """The recipe of its Python environment; None without such a build."""
        return next((known for known in self.environments if known.variant == variant), None)

    def recipe(self, capabilities: Iterable[str], across_hosts: bool = False) -> Recipe | None:
        """How to build it for GPUs of these compute capabilities, or for the CPU if there are none.

        across_hosts: include the RPC backend that joins several hosts.
        """
        architectures = [capability.replace(".", "") for capability in capabilities]
        recipe = self.recipes.get("cuda" if architectures else "cpu")
        if across_hosts and recipe is not None and self.rpc is not None:
            more = {"flags": (*recipe.flags, *self.rpc.flags), "targets": (*recipe.targets, *self.rpc.targets)}
            recipe = recipe.model_copy(update=more)
        if recipe is None or not architectures:
            return recipe
        flag = f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(architectures)}"
        return recipe.model_copy(update={"flags": (*recipe.flags, flag)})


class Engine(Frozen):
    """One engine. Versions ascend; the planner uses default_version if the service does not name one.

    method: how a host gets a build, unless the service says otherwise.
    """

    name: EngineName
    title: str
    default_version: str
    method: BuildMethod
    versions: tuple[EngineVersion, ...]

    def version(self, version: str | None = None) -> EngineVersion | None:
        """A release, by default default_version; None if rigup does not support it."""
        wanted = version or self.default_version
        return next((known for known in self.versions if known.version == wanted), None)


class _EngineFile(Frozen):
    """An engine as in its file: releases, and facts about ranges of them.

    families: model family to the first release that supports it. cuda: facts by major version. environments: the first
    entry that applies to a release and variant counts.
    archive, archive_root: defaults for releases without their own; {version} stands for the release.
    """

    name: EngineName
    title: str
    default_version: str
    source: str
    method: BuildMethod
    versions: tuple[EngineRelease, ...]
    formats: tuple[FormatSupport, ...]
    families: dict[str, VersionText]
    parsers: tuple[Parsers, ...] = ()
    kv_cache_types: tuple[KvCacheTypes, ...]
    known_bad: tuple[KnownBad, ...] = ()
    cuda: dict[str, CudaNeeds] = {}
    recipes: dict[Literal["cpu", "cuda"], Recipe] = {}
    rpc: RpcRecipe | None = None
    archive: str | None = None
    archive_root: str = ""
    images: tuple[Image, ...] = ()
    environments: tuple[EnvironmentRecipe, ...] = ()

    def resolved(self) -> Engine:
        """The engine with its releases, each with the facts that apply to it."""
        releases = sorted(self.versions, key=lambda release: version_key(release.version))
        versions = tuple(self._resolved(release) for release in releases)
        return Engine(
            name=self.name,
            title=self.title,
            default_version=self.default_version,
            method=self.method,
            versions=versions,
        )

    def _resolved(self, release: EngineRelease) -> EngineVersion:
        version = release.version
        types = next((known.names for known in self.kv_cache_types if known.holds(version)), {})
        if release.archive is None and self.archive is not None:
            archive, root = (text.replace("{version}", version) for text in (self.archive, self.archive_root))
            release = release.model_copy(update={"archive": archive, "archive_root": root})
        return EngineVersion(
            **dict(release),
            engine=self.name,
            title=self.title,
            method=self.method,
            families=frozenset(f for f, first in self.families.items() if version_key(first) <= version_key(version)),
            formats=tuple(known for known in self.formats if known.holds(version)),
            parsers=tuple(known for known in self.parsers if known.holds(version)),
            kv_cache_types=types,
            known_bad=tuple(known for known in self.known_bad if version in known.versions),
            cuda_needs=self.cuda.get(release.cuda.partition(".")[0]) if release.cuda else None,
            recipes=self.recipes,
            rpc=self.rpc,
            images=tuple(known for known in self.images if known.holds(version)),
            environments=tuple(_filled_in(known, version) for known in self.environments if known.holds(version)),
            source=self.source,
        )


def _filled_in(recipe: EnvironmentRecipe, version: str) -> EnvironmentRecipe:
    filled = {
        field: {name: text.replace("{version}", version) for name, text in getattr(recipe, field).items()}
        for field in ("indexes", "provides")
    }
    return recipe.model_copy(update=filled)


_TOML_HINT = "write it as TOML, like the toolkit's own engine files"


def load_engines(paths: Iterable[Path] = FILES) -> tuple[Engine, ...]:
    """Reads engine files in order; a later file replaces an engine of the same name.

    Raises InputError with the file, the key and the problem.
    """
    engines: dict[str, Engine] = {}
    for path in paths:
        try:
            engine = _EngineFile.model_validate(toml_of(path, read_text(path), _TOML_HINT)).resolved()
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InputError(
                f"{path}: {where}: {first['msg'].removeprefix('Value error, ')}",
                "compare with the toolkit's own engine files",
            ) from None
        if engine.version() is None:
            raise InputError(
                f"{path}: default_version: {engine.default_version} is not in versions",
                "choose one of the versions in the file",
            )
        engines[engine.name] = engine
    return tuple(engines.values())
