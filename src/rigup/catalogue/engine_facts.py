"""What is known of an engine: facts of their own kinds, each about some of its releases and with its source."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rigup.artifacts import Variant
from rigup.catalogue.versions import Ranged, VersionText
from rigup.units import Frozen, compute_capability

WeightFormat = Literal["bf16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int4", "gguf"]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d+$")]


class FormatSupport(Ranged):
    """How an engine reads one weight format.

    minimum: the lowest compute capability it runs on at all; "0.0" means that a CPU is enough.
    native: the lowest one whose tensor cores compute in the format; below it `fallback` says what happens and costs.
    """

    format: WeightFormat
    minimum: Capability
    native: Capability
    fallback: str = ""

    def runs_on(self, capability: str) -> bool:
        """Whether a GPU of this compute capability can hold such weights at all."""
        return compute_capability(capability) >= compute_capability(self.minimum)

    def native_on(self, capability: str) -> bool:
        """Whether a GPU of this compute capability computes in the format itself."""
        return compute_capability(capability) >= compute_capability(self.native)


class KvCacheTypes(Ranged):
    """The engine's own names for rigup's KV cache types: {"fp8": "fp8_e4m3"}; a missing key is a type it lacks."""

    names: dict[str, str]


class KnownBad(Frozen):
    """Versions that are known to fail on some GPUs (compute capabilities), with some models (architectures as in
    `config.json`) or with weights in some formats; empty means with every one.

    refuses: whether serving is out of the question, or works with a flaw that is worth a warning.
    """

    versions: tuple[str, ...]
    compute_capabilities: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
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

    repository: with its registry. tag: {version} stands for the release. program: run instead of the image's entry
    point, which differs by release; looked up in the image's PATH.
    """

    variant: Variant = "cuda"
    repository: str
    tag: str
    program: str


class EnvironmentRecipe(Ranged):
    """How the Python environment of a release is put together.

    project: its name on the package index; the requirement is PROJECT==VERSION. requirements: further ones. ray: one
    that joins hosts by Ray. python, python_from: see `environment.LockedEnvironment`; of uv's Python the minor
    version. overrides: requirements that replace those of packages. excludes: packages that are never installed.
    indexes: packages that another index has, with its address, {version} standing for the release.
    provides: further names of the project, with versions. runtime_packages: Debian packages
    that it runs on.
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
    """How an engine is built from source: CMake flags, targets, and Debian packages to build and to run."""

    flags: tuple[str, ...]
    targets: tuple[str, ...]
    packages: tuple[str, ...]
    runtime_packages: tuple[str, ...]
    source: str


class RpcRecipe(Frozen):
    """What a source build needs beyond its recipe to work across hosts, and the program of the workers."""

    flags: tuple[str, ...]
    targets: tuple[str, ...]
    program: str
    source: str


class EngineRelease(Frozen):
    """One pinned release as the file states it. One that is built from source has no wheels, Python or torch.

    wheels: file name to sha256. cuda: what it is linked against. glibc: the lowest that the wheels' tags allow.
    archive, archive_root: where its source archive is and the folder in it, as `lock.LockedSource` has them.
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
