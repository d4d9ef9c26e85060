"""Tuned fused-MoE kernels in rigup's own form, each with its provenance.

Each kernel is a TOML file, in any folder below `files/moe_configs/` of the toolkit or of a fleet. A fleet's file
replaces the toolkit's for the same kernel and Triton version. `commands/moe_configs.py` writes the engines' forms.
"""

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from packaging.version import Version
from pydantic import Field

from rigup.catalogue.data_files import validated
from rigup.errors import InputError
from rigup.regular_files import read_bytes, text_of, toml_of
from rigup.toolkit import toolkit_root
from rigup.units import Frozen

FOLDER = "files/moe_configs"
TOOLKIT = toolkit_root() / FOLDER
FORM_HINT = "write it as in docs/moe_configs.md, or with rigup tune"

Size = Annotated[int, Field(ge=1, le=2**20)]


class Launch(Frozen):
    """How to launch the kernel for one number of tokens, in the names of the engines and Triton."""

    BLOCK_SIZE_M: Size
    BLOCK_SIZE_N: Size
    BLOCK_SIZE_K: Size
    GROUP_SIZE_M: Size
    num_warps: Size
    num_stages: Size
    SPLIT_K: Size | None = None
    num_ctas: Size | None = None


class Measurement(Frozen):
    """Kernel times for one number of tokens, without and with the table: microseconds, medians of several runs."""

    tokens: Size
    baseline_us: Annotated[float, Field(gt=0)]
    tuned_us: Annotated[float, Field(gt=0)]


class Provenance(Frozen):
    """The origin of a table.

    measured_by: a person or program. measured_on: machine and driver. engine: with its version. baseline: what it was
    compared with. gain: the result, in words. source: where it is documented. licence: SPDX, or the terms of use.
    """

    measured_by: str
    measured_on: str
    engine: str
    baseline: str
    gain: str
    source: str
    licence: str


class TunedKernel(Frozen):
    """One tuned kernel.

    experts: number on one GPU. width: of an expert's slice on the GPU. dtype: in the engines' names ("fp8_w8a8"), ""
    for 16 bits. block_shape: of the weights' scales. device: NVML's name of the card. triton: the version used for
    tuning. launches: number of tokens to launch.
    """

    experts: Size
    width: Size
    dtype: Annotated[str, Field(pattern=r"^([a-z]+[0-9]*_w[0-9]+a[0-9]+)?$")]
    block_shape: tuple[Size, Size] | None = None
    device: Annotated[str, Field(min_length=1)]
    triton: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    provenance: Provenance
    launches: Annotated[dict[Size, Launch], Field(min_length=1)]
    measurements: tuple[Measurement, ...] = ()

    @property
    def kernel(self) -> tuple[Any, ...]:
        """The key with which an engine looks up a table: everything except the Triton version."""
        return (self.experts, self.width, self.dtype, self.block_shape, self.device)

    @property
    def title(self) -> str:
        """The name in messages: "E=32,N=1536 fp8_w8a8 on NVIDIA H200, Triton 3.6.0"."""
        dtype = self.dtype or "16 bits"
        return f"E={self.experts},N={self.width} {dtype} on {self.device}, Triton {self.triton}"


class MoeConfigFile(NamedTuple):
    """A kernel and its file: the path below `files/moe_configs`, and the sha256 of its content."""

    path: str
    sha256: str
    tuned: TunedKernel


def load_moe_configs(*folders: Path) -> tuple[MoeConfigFile, ...]:
    """Every tuned kernel of these folders, by path; a later folder replaces those of an earlier one.

    Raises InputError with the file and the wrong key, or with two files about the same kernel.
    """
    found: dict[tuple[Any, ...], MoeConfigFile] = {}
    for folder in dict.fromkeys(path.resolve() for path in folders):
        own: dict[tuple[Any, ...], MoeConfigFile] = {}
        for path in sorted(folder.rglob("*.toml")):
            entry = _read(folder, path)
            key = (*entry.tuned.kernel, entry.tuned.triton)
            if key in own:
                raise InputError(f"{path}: {entry.tuned.title} is also in {own[key].path}", "delete one of the two")
            own[key] = entry
        paths = {entry.path for entry in own.values()}
        found = {key: entry for key, entry in found.items() if entry.path not in paths} | own
    return tuple(sorted(found.values(), key=lambda entry: entry.path))


def best_for(files: tuple[MoeConfigFile, ...], kernel: tuple[Any, ...], triton: str | None) -> MoeConfigFile | None:
    """The file for a kernel: tuned with this Triton version, otherwise the newest older one, otherwise the oldest."""
    fitting = sorted((f for f in files if f.tuned.kernel == kernel), key=lambda f: Version(f.tuned.triton))
    if triton is None or not fitting:
        return fitting[-1] if fitting else None
    older = [file for file in fitting if Version(file.tuned.triton) <= Version(triton)]
    return older[-1] if older else fitting[0]


def path_of(tuned: TunedKernel) -> str:
    """The path of a newly tuned kernel below `files/moe_configs`: the card's folder, and a name without spaces."""
    block = "_" + "x".join(str(size) for size in tuned.block_shape) if tuned.block_shape else ""
    dtype = f"_{tuned.dtype}" if tuned.dtype else ""
    name = f"E{tuned.experts}_N{tuned.width}{dtype}{block}_triton-{tuned.triton}.toml"
    return f"{re.sub(r'[^A-Za-z0-9-]+', '_', tuned.device)}/{name}"


def _read(folder: Path, path: Path) -> MoeConfigFile:
    content = read_bytes(path)
    tuned = validated(TunedKernel, toml_of(path, text_of(str(path), content), FORM_HINT), path, FORM_HINT)
    return MoeConfigFile(path.relative_to(folder).as_posix(), hashlib.sha256(content).hexdigest(), tuned)
