"""Published measurements of memory as candidates, for the oracle to be held against. The data says where each is from.

The catalogue beside this file has the models and checkpoints of the rows, with the sources of their shapes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.data_files import read_entries
from rigup.catalogue.model import Model
from rigup.catalogue.versions import version_key
from rigup.plan import Parallel
from rigup.planner.candidate import Candidate
from rigup.rig import Gpu, Rig
from rigup.service import Service
from rigup.units import GIB
from tests.unit.planner.asking import catalogue

FOLDER = Path(__file__).parent
GGUF = CheckpointEntry(
    repo="rows/gguf", model="any", quant="any", scheme="gguf", bytes=10**12, minimum_versions={"llama.cpp": "b1"}
)
_KV_TYPES = {"f16": "f16", "q8_0": "q8_0", "fp8": "fp8", "fp8_e4m3": "fp8"}
_LARGE_GPU_GIB = 70


@dataclass(frozen=True)
class Row:
    """One row as the file has it. All figures are GiB of one GPU, of llama.cpp those of all GPUs together."""

    data: dict[str, Any]

    @property
    def name(self) -> str:
        """Its id."""
        return str(self.data["id"])

    @property
    def engine(self) -> str:
        """The engine; forks of llama.cpp are counted as llama.cpp."""
        return str(self.data["engine"])

    @property
    def version(self) -> str:
        """The release, of those that a row names; "" for others."""
        return str(self.data.get("version", ""))

    @property
    def kv_gib(self) -> float | None:
        """KV cache."""
        measured: dict[str, float] = self.data["measured"]
        return measured.get("kv_gib_all" if self.engine == "llama.cpp" else "kv_gib_per_gpu")

    def measured(self, key: str) -> float | None:
        """Any other figure."""
        measured: dict[str, float] = self.data["measured"]
        return measured.get(key)


@cache
def rows() -> tuple[Row, ...]:
    """Every row."""
    return tuple(Row(row) for row in json.loads((FOLDER / "rows.json").read_text())["rows"])


@cache
def models() -> dict[str, Model]:
    """The rows' models by name."""
    return {model.name: model for model in read_entries(FOLDER / "catalogue" / "models", "model", Model)}


@cache
def checkpoints() -> dict[str, CheckpointEntry]:
    """The rows' checkpoints by repository."""
    found = read_entries(FOLDER / "catalogue" / "checkpoints", "checkpoint", CheckpointEntry)
    return {checkpoint.repo: checkpoint for checkpoint in found}


def has_known_card(row: Row) -> bool:
    """Whether the catalogue has the row's card."""
    return "gpu" in row.data and _gpu(row).name.endswith(row.data["gpu"])


def _gpu(row: Row) -> Gpu:
    """The card of the catalogue; of cards that no source names or that it does not have, any large one."""
    wanted = f"NVIDIA {row.data.get('gpu', 'B200')}"
    known = {gpu.name: gpu for gpu in catalogue().gpus}
    return next(
        (gpu for name, gpu in known.items() if name.endswith(wanted.removeprefix("NVIDIA "))), known["NVIDIA B200"]
    )


def candidate(row: Row) -> Candidate:
    """The row as the planner would have it: what it does not say is the engine's default."""
    data, flags = row.data, row.data.get("flags", {})
    gpu = _gpu(row)
    sizes = data["parallel"]
    parallel = Parallel(
        tensor=sizes["tensor"],
        pipeline=sizes["pipeline"],
        data=sizes["data"],
        expert=sizes["tensor"] * sizes["data"] if sizes["expert"] else 1,
    )
    (engine,) = (one for one in catalogue().engines if one.name == row.engine)
    release = engine.versions[-1]
    if row.version and row.engine != "llama.cpp":
        before = [known for known in engine.versions if known.key <= version_key(row.version)]
        release = (before or [engine.versions[0]])[-1].model_copy(update={"version": row.version})
    usual = "f16" if row.engine == "llama.cpp" else "bf16"
    large = (gpu.memory_mib or 10**6) >= _LARGE_GPU_GIB * 1024
    slots: int | None = data.get("max_num_seqs")
    length: int = data.get("max_model_len") or 8192
    return Candidate(
        rig=Rig(gpus=(gpu,) * data["gpu_count"], host_memory_gib=4096),
        service=Service(name="row", model=data["model"], flags=_flags(flags)),
        catalogue=catalogue(),
        gpu_indices=tuple(range(data["gpu_count"])),
        model=models()[data["model"]],
        checkpoint=checkpoints()[data["checkpoint"]] if data.get("checkpoint") else GGUF,
        engine=engine,
        release=release,
        build=release.method,
        parallel=parallel,
        context=length // slots if slots and row.engine == "llama.cpp" else length,
        kv_cache_type=_KV_TYPES.get(data.get("kv_cache_dtype", usual), usual),
        sequences=slots or (1024 if large else 256),
        batched_tokens=data.get("max_num_batched_tokens") or (8192 if large else 2048),
        memory_fraction=data.get("fraction", 0.9),
        fraction_given=True,
        eager=bool(flags.get("enforce_eager")),
    )


def _flags(flags: dict[str, Any]) -> dict[str, Any]:
    """What the row's flags are called on the command line."""
    given: dict[str, Any] = {}
    if flags.get("language-model-only"):
        given["--language-model-only"] = True
    if "speculative" in flags:
        given["--speculative-config"] = '{"method": "mtp"}'
    if flags.get("kv_unified", True):  # the default of a server that is not told how many slots it has
        given["--kv-unified"] = True
    if "swa_full_tokens_ratio" in flags:
        given["--swa-full-tokens-ratio"] = flags["swa_full_tokens_ratio"]
    if flags.get("radix_cache") is False:
        given["--disable-radix-cache"] = True
    return given


def gib(size: float) -> float:
    """Bytes as GiB."""
    return size / GIB
