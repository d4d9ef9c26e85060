"""Pinned parts of an engine build that is not compiled: a Python environment or a container image."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rigup.service import EngineName
from rigup.units import Frozen

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Architecture = Literal["x86_64", "aarch64"]
Variant = Literal["cuda", "cpu"]
# a version or a quantisation in a lock: it becomes part of paths, units and argv
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+!-]{0,99}$")]


ARCHITECTURES: tuple[Architecture, ...] = ("x86_64", "aarch64")


_Wheels = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.whl$")], Sha256]


class _LockedBuild(Frozen):
    """A build of one engine version for one kind of machine."""

    engine: EngineName
    version: Word
    variant: Variant = "cuda"
    architecture: Architecture = "x86_64"

    @property
    def name(self) -> tuple[str, str, Variant, Architecture]:
        """Its identity: engine, version, variant and architecture."""
        return self.engine, self.version, self.variant, self.architecture


class LockedEnvironment(_LockedBuild):
    """Every Python package of one build of an engine, as uv resolved them: one wheel a package.

    python: the version exactly as uv provides it ("3.12.12"); for the operating system's Python only "3.11".
    files: wheel file name to sha256. addresses: URL by file name, for wheels that the package index does not have.
    bytes: of all wheels, packed as they are downloaded; 0 if an older rigup wrote the lock, or no server has the sizes.
    """

    python: Annotated[str, Field(pattern=r"^3\.[0-9]+(\.[0-9]+)?$")]
    python_from: Literal["uv", "os"] = "uv"
    files: _Wheels
    addresses: dict[str, Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]] = {}
    bytes: Annotated[int, Field(ge=0, le=2**54, strict=True)] = 0

    @model_validator(mode="after")
    def _addresses_of_its_files(self) -> Self:
        if stray := sorted(self.addresses.keys() - self.files.keys()):
            raise ValueError(f"addresses names {stray[0]}, which is not among files")
        return self

    def has(self, project: str, series: str = "") -> bool:
        """Whether a project is among its packages, in a version of a series ("13.0") if one is named.

        project: its name on the index, in lower case, with hyphens.
        """
        names = (file.partition("-") for file in self.files)
        return any(
            name.lower().replace("_", "-") == project and (not series or rest.startswith(f"{series}."))
            for name, _, rest in names
        )


class CudaCompiler(Frozen):
    """CUDA's compiler as packages of an environment bring it, for kernels that the engine compiles on the host.

    package, series: what has to be among the packages, and the CUDA series of the environment's headers, which it must
    fit ("13.0"). folder: where it is below site-packages. kernels: functions that describe modules of FlashInfer
    ("flashinfer.jit.sampling:gen_sampling_module"), which the engine needs in its start and which are compiled with the
    environment.
    kernels_of: in the catalogue, further ones by the compute capability that needs them.
    seconds: how long each takes to compile, for one capability; measured on two slow processors (docs/decisions/0017).
    compute_capabilities: those that `kernels` are compiled for, ascending: the rig's; () for none and in the catalogue.
    """

    package: Word
    series: Word
    folder: str
    kernels: tuple[str, ...] = ()
    kernels_of: dict[str, tuple[str, ...]] = {}
    seconds: dict[str, int] = {}
    compute_capabilities: tuple[str, ...] = ()
    source: str

    def for_rig(self, compute_capabilities: tuple[str, ...]) -> Self:
        """The compiler with the kernels that these capabilities need."""
        own = (kernel for capability in compute_capabilities for kernel in self.kernels_of.get(capability, ()))
        kernels = (*self.kernels, *own)
        chosen = compute_capabilities if kernels else ()
        return self.model_copy(update={"kernels": kernels, "kernels_of": {}, "compute_capabilities": chosen})


class WheelLibrary(Frozen):
    """A library that a build from source is compiled with and keeps beside its programs, as a wheel brings it.

    project, version: of the wheel on the package index. cuda: the major version that it is for. folder: below the
    wheel's root, with headers and the library. file: the library, below that folder. flags: CMake's, in place of a
    recipe's of the same names; {library} stands for the unpacked folder.
    wheel, sha256: its file for the rig's architecture, as locked; "" while it is not, and in the catalogue.
    """

    project: Word
    version: Word
    cuda: Word
    folder: str
    file: str
    flags: tuple[str, ...]
    source: str
    wheel: str = ""
    sha256: str = ""

    def as_locked(self, locked: "LockedNccl | None", architecture: Architecture) -> Self:
        """The library with the wheel that a lock has for an architecture."""
        wheel = locked.wheel(architecture) if locked else None
        if locked is None or wheel is None:
            return self
        return self.model_copy(update={"version": locked.version, "wheel": wheel, "sha256": locked.files[wheel]})


class LockedHarness(Frozen):
    """Every Python package of the evaluation harness, for controlling machines of one kind: one wheel a package.

    version: of the harness itself. python: the minor version of the Python that runs it, rigup's own ("3.11").
    """

    version: Word
    architecture: Architecture = "x86_64"
    python: Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
    files: _Wheels

    @property
    def name(self) -> tuple[str, str]:
        """Its identity: the kind of controlling machine."""
        return self.python, self.architecture


class _LockedProgram(Frozen):
    """A program or library in wheels: its version, and its wheels by file name, one for each architecture in use."""

    version: Word
    files: dict[str, Sha256]

    def wheel(self, architecture: str) -> str | None:
        """The name of the wheel for an architecture."""
        return next((name for name in self.files if name.endswith(f"_{architecture}.whl")), None)


class LockedUv(_LockedProgram):
    """uv, which makes the environments."""

    files: dict[Annotated[str, Field(pattern=r"^uv-[A-Za-z0-9_.+-]+\.whl$")], Sha256]


class LockedSmg(_LockedProgram):
    """smg, with which a gateway routes by prefix."""

    files: dict[Annotated[str, Field(pattern=r"^smg-[A-Za-z0-9_.+-]+\.whl$")], Sha256]


class LockedNccl(_LockedProgram):
    """NCCL, which llama.cpp is compiled with where it cuts layers for several GPUs."""

    files: dict[Annotated[str, Field(pattern=r"^nvidia_nccl_cu[0-9]+-[A-Za-z0-9_.+-]+\.whl$")], Sha256]


class LockedImage(_LockedBuild):
    """A container image of an engine by digest.

    repository: with its registry, "docker.io/vllm/vllm-openai". bytes: of its layers, packed as they are downloaded.
    """

    repository: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$")]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0, le=2**54, strict=True)] = 0

    @property
    def reference(self) -> str:
        """The reference for container tools: repository@sha256:..."""
        return f"{self.repository}@{self.digest}"
