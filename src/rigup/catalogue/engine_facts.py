"""What is known of an engine: facts of their own kinds, each about some of its releases and with its source."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from rigup.artifacts import CudaCompiler, Variant
from rigup.catalogue.versions import Ranged
from rigup.units import Capability, Frozen, compute_capability

WeightFormat = Literal["bf16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int4", "gguf"]


class FormatSupport(Ranged):
    """How an engine reads one weight format.

    minimum: the lowest compute capability that it runs on; "0.0" means that a CPU is enough.
    native: the lowest one whose tensor cores compute in the format. fallback: what happens below that, and its cost.
    methods: only checkpoints that one of these methods has quantised; () for all that no row before it is about.
    """

    format: WeightFormat
    methods: tuple[str, ...] = ()
    minimum: Capability
    native: Capability
    fallback: str = ""

    def covers(self, weight_format: str, method: str) -> bool:
        """Whether it is about weights in this format that this method has quantised."""
        return self.format == weight_format and (not self.methods or method in self.methods)

    def runs_on(self, capability: str) -> bool:
        """Whether the format works on a GPU of this compute capability at all."""
        return compute_capability(capability) >= compute_capability(self.minimum)

    def native_on(self, capability: str) -> bool:
        """Whether a GPU of this compute capability computes in the format itself."""
        return compute_capability(capability) >= compute_capability(self.native)


class MistralFormat(Ranged):
    """That an engine reads checkpoints in Mistral's own format.

    names: only those whose repository's name has one of these in it, in small letters; () for every one.
    """

    names: tuple[str, ...] = ()

    def covers(self, repo: str) -> bool:
        """Whether it reads the checkpoint of a repository, "org/name"."""
        return not self.names or any(name in repo.lower() for name in self.names)


class Repacking(Ranged):
    """How weights of some schemes grow as an engine repacks them for its kernels on some GPUs.

    compute_capabilities, architectures, methods (of quantisation): () for all. part, width: to what multiples it fills
    up the matrices of experts: an expert's width, or the part of it that one rank has, and the model's width. scales,
    expert_scales: by what part weights of the scheme grow, outside of experts and in them.
    """

    schemes: tuple[str, ...]
    compute_capabilities: tuple[Capability, ...] = ()
    architectures: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    part: int = Field(default=1, ge=1)
    width: int = Field(default=1, ge=1)
    scales: float = Field(default=0.0, ge=0, le=1)
    expert_scales: float = Field(default=0.0, ge=0, le=1)

    def covers(self, scheme: str, method: str, capability: str, architecture: str | None) -> bool:
        """Whether it is about weights of this scheme and architecture on this compute capability, "" for no GPU."""
        return (
            scheme in self.schemes
            and (not self.compute_capabilities or capability in self.compute_capabilities)
            and (not self.architectures or architecture in self.architectures)
            and (not self.methods or method in self.methods)
        )

    def of_experts(self, width: int, part: float) -> float:
        """By what factor matrices of experts of this size grow, without scales."""
        return (-(-width // self.width) * self.width / width) * (-(-part // self.part) * self.part / part)


AS_STORED = Repacking(schemes=(), source="no entry of the engine's [[repacking]] is about these weights")


class CutTowers(Ranged):
    """Architectures whose vision tower tensor parallelism cuts, unless one of these options says otherwise.

    whole_with: options by their value. Of other architectures each rank of the first stage has the whole.
    every_stage: whether each stage of a pipeline has it. encoder: how often what the cut saves is taken again to encode
    pictures, beside the language model's step.
    """

    architectures: tuple[str, ...]
    whole_with: dict[str, str | bool] = {}
    every_stage: bool = False
    encoder: float = Field(default=0.0, ge=0)


class PositionTables(Ranged):
    """Tables of sines and cosines: `factor` times as many rows as the model's context has tokens.

    architectures: () for all that no earlier entry has. element_bytes: of each sine and cosine.
    """

    architectures: tuple[str, ...] = ()
    factor: int = Field(1, ge=1)
    element_bytes: int = Field(ge=1)


class WholeEmbeddings(Ranged):
    """Architectures whose embeddings are whole on every rank of the first stage."""

    architectures: tuple[str, ...]


class StageEmbeddings(Ranged):
    """Architectures whose embeddings are on every stage of a pipeline, not the first alone; heads: the head, too."""

    architectures: tuple[str, ...]
    heads: bool = False


class KvCacheTypes(Ranged):
    """The engine's names for rigup's KV cache types: {"fp8": "fp8_e4m3"}; the engine lacks types without a key."""

    names: dict[str, str]


class OwnCacheType(Ranged):
    """The KV cache type that the engine takes by itself for some architectures, where it is not the model's own type.

    compute_capabilities: () for all. only: whether it refuses every other type. told: whether it must be told this one,
    and refuses its own choice.
    """

    name: str
    only: bool = False
    told: bool = False
    architectures: tuple[str, ...]
    compute_capabilities: tuple[Capability, ...] = ()

    def covers(self, architecture: str | None, capabilities: Collection[str]) -> bool:
        """Whether it is about this architecture on GPUs of these compute capabilities, () for no GPU."""
        where = self.compute_capabilities
        there = not where or (bool(capabilities) and set(capabilities) <= set(where))
        return there and architecture in self.architectures


class UnscaledCache(Ranged):
    """That an engine's kernels keep the FP8 cache of some architectures without scales, on some GPUs."""

    architectures: tuple[str, ...]
    compute_capabilities: tuple[Capability, ...]

    def covers(self, architecture: str | None, capabilities: Collection[str]) -> bool:
        """Whether it is about this architecture on GPUs of all these compute capabilities."""
        return architecture in self.architectures and set(capabilities) <= set(self.compute_capabilities)


class KnownBad(Frozen):
    """Versions that are known to fail, with some GPUs (compute capabilities, cards), models (architectures) or weights.

    An empty field means any. cards: how their names in NVML begin. formats: "fp8"; schemes: "fp8_block128".
    tensor_parallel: whether it fails only where several cards share each layer.
    refuses: whether rigup refuses to serve, or only warns about a flaw.
    """

    versions: tuple[str, ...]
    compute_capabilities: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    tensor_parallel: bool = False
    architectures: tuple[str, ...] = ()
    formats: tuple[WeightFormat, ...] = ()
    schemes: tuple[str, ...] = ()
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
    as_released: packages of which none is taken that is newer than the project's wheel, if the index tells their dates:
    its METADATA has no upper limit. provides: further names of the project, with versions. runtime_packages: Debian
    packages that it needs at run time. compiler: that of its GPU kernels, which `requirements` bring.
    """

    variant: Variant = "cuda"
    project: str
    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")] = "3.12"
    python_from: Literal["uv", "os"] = "uv"
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    indexes: dict[str, Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]] = {}
    as_released: tuple[str, ...] = ()
    provides: dict[str, str] = {}
    requirements: tuple[str, ...] = ()
    runtime_packages: tuple[str, ...] = ()
    ray: str | None = None
    compiler: CudaCompiler | None = None


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
