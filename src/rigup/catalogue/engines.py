"""Engines: which releases rigup supports, and everything that is known about each of them.

The figures live in `data/engines/`, each with its source; `engine_files` reads them, and what a fleet adds.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, Self

from packaging.version import Version

from rigup.artifacts import Sha256, Variant, WheelLibrary
from rigup.catalogue.abilities import Abilities, AbilityList, Kind
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.engine_facts import (
    AS_STORED,
    CudaNeeds,
    CutTowers,
    EnvironmentRecipe,
    FormatSupport,
    Image,
    KnownBad,
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
from rigup.catalogue.model import Model, ParserNames
from rigup.catalogue.versions import VersionText, version_key
from rigup.rig import Gpu
from rigup.service import BuildMethod, EngineName
from rigup.units import Frozen


class EngineRelease(Frozen):
    """One pinned release, as in the file. A release that is built from source has no wheels, Python or torch.

    wheels: file name to sha256. cuda: the version that it is linked against. glibc: the lowest that its wheels accept.
    archive, archive_root: the address of its source archive and the folder in it, as in `lock.LockedSource`.
    cmake: the text that CMake reads after each project() of that source; quick_cmake: instead of it, of a quick build.
    """

    version: VersionText
    wheels: dict[str, Sha256] = {}
    python: str | None = None
    torch: str | None = None
    flashinfer: str | None = None
    cuda: str | None = None
    glibc: str | None = None
    archive: str | None = None
    archive_root: str = ""
    cmake: str = ""
    quick_cmake: str = ""


class EngineVersion(EngineRelease):
    """One release with all facts of the engine that apply to it.

    abilities: what it can serve. mistral_format: None where it does not read it. cuda_needs: None for a release without
    CUDA. nccl: for builds that reduce over several GPUs; None where it is not for the release's CUDA.
    """

    engine: EngineName
    title: str
    method: BuildMethod
    abilities: Abilities
    formats: tuple[FormatSupport, ...]
    mistral_format: MistralFormat | None = None
    kv_cache_types: dict[str, str]
    own_cache_types: tuple[OwnCacheType, ...] = ()
    unscaled_caches: tuple[UnscaledCache, ...] = ()
    repacking: tuple[Repacking, ...] = ()
    cut_towers: tuple[CutTowers, ...] = ()
    position_tables: tuple[PositionTables, ...] = ()
    whole_embeddings: tuple[WholeEmbeddings, ...] = ()
    stage_embeddings: tuple[StageEmbeddings, ...] = ()
    known_bad: tuple[KnownBad, ...]
    cuda_needs: CudaNeeds | None
    recipes: dict[Literal["cpu", "cuda"], Recipe]
    rpc: RpcRecipe | None = None
    nccl: WheelLibrary | None = None
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

    def support(self, scheme: str, method: str = "") -> FormatSupport | None:
        """How it reads weights of a scheme ("nvfp4", "fp8_block128", "int4_g32"); None if it cannot.

        method: of quantisation, as the engine names it, where one has a row of its own.
        """
        weight_format = scheme.partition("_")[0]
        return next((known for known in self.formats if known.covers(weight_format, method)), None)

    def repacks(self, scheme: str, method: str, capability: str, architecture: str | None = None) -> Repacking:
        """How it repacks weights of a scheme on a GPU of this compute capability, "" for none; most stay as stored.

        method: that quantised them.
        """
        known = (entry for entry in self.repacking if entry.covers(scheme, method, capability, architecture))
        return next(known, AS_STORED)

    def cut_tower(self, architecture: str | None, flags: Mapping[str, object]) -> CutTowers | None:
        """How tensor parallelism cuts the vision tower of an architecture; None where each rank has the whole."""
        cut = (known for known in self.cut_towers if not (flags.items() & known.whole_with.items()))
        return next((known for known in cut if architecture in known.architectures), None)

    def positions(self, architecture: str | None) -> PositionTables | None:
        """How it keeps tables of positions for an architecture; None where it has none."""
        of_any = (entry for entry in self.position_tables if architecture in (entry.architectures or (architecture,)))
        return next(of_any, None)

    def cuts_embeddings(self, architecture: str | None) -> bool:
        """Whether tensor parallelism cuts the embeddings of an architecture."""
        return not any(architecture in known.architectures for known in self.whole_embeddings)

    def repeats_embeddings(self, architecture: str | None) -> bool:
        """Whether every stage of a pipeline has the embeddings of an architecture."""
        return any(architecture in known.architectures for known in self.stage_embeddings)

    def repeats_heads(self, architecture: str | None) -> bool:
        """Whether every stage of a pipeline has the output head of an architecture."""
        return any(known.heads and architecture in known.architectures for known in self.stage_embeddings)

    def reads_format(self, checkpoint: CheckpointEntry) -> bool:
        """Whether it reads the files of a checkpoint in Mistral's own format; True for any other checkpoint."""
        known = self.mistral_format
        return not checkpoint.mistral_class or (known is not None and known.covers(checkpoint.repo))

    def architecture_of(self, model: Model, checkpoint: CheckpointEntry | None = None) -> str | None:
        """What this engine calls the architecture of a checkpoint of a model; None if nobody knows.

        Of several the first that it has. Without a checkpoint: of one in transformers' format.
        """
        names = (checkpoint.mistral_class,) if checkpoint and checkpoint.mistral_class else model.architectures
        if self.engine == "llama.cpp":
            converted = (self.abilities.converted(name) for name in model.architectures)
            names = (model.gguf_architecture,) if model.gguf_architecture else tuple(name for name in converted if name)
        if len(names) < 2:
            return next(iter(names), None)
        return next((name for name in names if self.abilities.has("architectures", name)), names[0])

    def lacks(self, model: Model, checkpoint: CheckpointEntry | None = None) -> bool:
        """Whether its package was read and has no architecture of the model, or of a checkpoint of it."""
        name = self.architecture_of(model, checkpoint)
        return self.abilities.read if name is None else self.abilities.lacks("architectures", name)

    def parsers_of(self, model: Model) -> ParserNames:
        """The parsers that it has of those that the model names for its engine, best first."""
        named = model.parsers.get(self.engine, ParserNames())
        return ParserNames(
            tool=self._there("tool_parsers", named.tool),
            reasoning=self._there("reasoning_parsers", named.reasoning),
            reasoning_inline=self._there("reasoning_parsers", named.reasoning_inline),
        )

    def _there(self, kind: Kind, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if not self.abilities.lacks(kind, name))

    def own_cache_type(self, architecture: str | None, gpus: Collection[Gpu]) -> OwnCacheType | None:
        """The KV cache type that it takes by itself for an architecture on these GPUs; None for the model's own."""
        capabilities = {gpu.compute_capability for gpu in gpus}
        return next((known for known in self.own_cache_types if known.covers(architecture, capabilities)), None)

    def is_unscaled(self, architecture: str | None, capabilities: Collection[str]) -> bool:
        """Whether an FP8 cache of this architecture has no scales on GPUs of all these compute capabilities."""
        return bool(capabilities) and any(one.covers(architecture, capabilities) for one in self.unscaled_caches)

    def kv_cache_name(self, kv_cache_type: str) -> str | None:
        """Its name of a KV cache type ("fp8" is "fp8_e4m3" in SGLang); None if it does not have the type."""
        return self.kv_cache_types.get(kv_cache_type)

    def bad_on(self, gpus: Collection[Gpu], architectures: Iterable[str], scheme: str) -> tuple[KnownBad, ...]:
        """Known failures with such a model on any of these GPUs, refusals first."""
        found, classes = frozenset(gpu.compute_capability for gpu in gpus), frozenset(architectures)
        hits = [
            entry
            for entry in self.known_bad
            if (not entry.formats or scheme.partition("_")[0] in entry.formats)
            and (not entry.schemes or scheme in entry.schemes)
            and not (entry.compute_capabilities and found.isdisjoint(entry.compute_capabilities))
            and (not entry.cards or any(gpu.name.startswith(entry.cards) for gpu in gpus))
            and not (entry.architectures and classes.isdisjoint(entry.architectures))
        ]
        return tuple(sorted(hits, key=lambda entry: not entry.refuses))

    def image(self, variant: Variant) -> Image | None:
        """Its container image for GPUs or for the CPU; None if there is none."""
        return next((known for known in self.images if known.variant == variant), None)

    def environment(self, variant: Variant) -> EnvironmentRecipe | None:
        """The recipe of its Python environment; None without such a build."""
        return next((known for known in self.environments if known.variant == variant), None)

    def recipe(
        self,
        capabilities: Iterable[str],
        across_hosts: bool = False,
        toolkit: str | None = None,
        library: WheelLibrary | None = None,
    ) -> Recipe | None:
        """How to build it for GPUs of these compute capabilities, or for the CPU if there are none.

        across_hosts: include the RPC backend that joins several hosts. toolkit: the version of the CUDA toolkit; by
        default the first of the release that the engine is made for. library: what it is compiled with.
        """
        architectures = [capability.replace(".", "") for capability in capabilities]
        recipe = self.recipes.get("cuda" if architectures else "cpu")
        if across_hosts and recipe is not None and self.rpc is not None:
            more = {"flags": (*recipe.flags, *self.rpc.flags), "targets": (*recipe.targets, *self.rpc.targets)}
            recipe = recipe.model_copy(update=more)
        if recipe is None:
            return None
        if library is not None:
            named_again = {flag.partition("=")[0] for flag in library.flags}
            kept = (flag for flag in recipe.flags if flag.partition("=")[0] not in named_again)
            recipe = recipe.model_copy(update={"flags": (*kept, *library.flags)})
        cuda = (f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(architectures)}",) if architectures else ()
        series = ".".join((toolkit or self.cuda or "").split(".")[:2])
        names = {"{version}": self.version, "{number}": self.version.removeprefix("b")}
        names |= {"{toolkit}": series, "{packages}": series.replace(".", "-")}

        def named(words: tuple[str, ...]) -> tuple[str, ...]:
            for name, text in names.items():
                words = tuple(word.replace(name, text) for word in words)
            return words

        return recipe.model_copy(
            update={
                "flags": named((*recipe.flags, *cuda)),
                "packages": named(recipe.packages),
                "runtime_packages": named(recipe.runtime_packages),
            }
        )


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

    def can_add(self, version: str) -> bool:
        """Whether `rigup lock --upgrade` can add a release that is not here: a numbered build of llama.cpp."""
        return self.method == "source" and re.fullmatch(r"b[1-9][0-9]{0,8}", version) is not None

    def other_versions(self, version: str) -> str:
        """A hint for a version that is not here."""
        known = f"versions: {', '.join(release.version for release in self.versions)}"
        if self.can_add(version):
            return f"{known}; to add this build: rigup lock --upgrade {self.name}={version}"
        if self.method == "source":
            return f"{known}; write a build like {self.default_version}, and rigup lock --upgrade adds it"
        return f"{known}; to add one, write a [[versions]] entry to the fleet's catalogue/engines/"

    def with_lists(self, lists: Iterable[AbilityList]) -> Self:
        """The same with these lists, of a fleet, and no others, of what releases can serve."""
        own = {one.version: one for one in lists if one.engine == self.name}
        versions = tuple(
            known.model_copy(update={"abilities": known.abilities.model_copy(update={"own": own.get(known.version)})})
            for known in self.versions
        )
        return self.model_copy(update={"versions": versions})
