"""Candidates for tests: the catalogue's own facts, put together in a way that the planner need not have chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.catalogue.engines import Engine
from rigup.plan import Parallel
from rigup.planner.candidate import Candidate
from rigup.planner.inputs.rig_and_services import read_rig
from rigup.service import Service

CATALOGUE: Catalogue = load_catalogue()
PRO_6000 = "RTX PRO 6000 Blackwell Workstation Edition"
MAX_Q = "RTX PRO 6000 Blackwell Max-Q Workstation Edition"


def engine(name: str) -> Engine:
    """One engine of the toolkit's catalogue."""
    return CATALOGUE.engines_by_name[name]


def candidate(
    gpus: object,
    repo: str,
    engine_name: str = "vllm",
    version: str | None = None,
    quant: str | None = None,
    parallel: Mapping[str, int] | None = None,
    rig: Mapping[str, Any] | None = None,
    service: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Candidate:
    """A candidate on `gpus`, as in a rig, for a checkpoint of the catalogue; `changes` are Candidate's own fields."""
    entry = next(c for c in CATALOGUE.checkpoints if c.repo == repo and quant in (None, c.quant))
    chosen = engine(engine_name)
    release = chosen.version(version)
    assert release is not None, f"{engine_name} {version} is not in the catalogue"
    found = read_rig({"gpus": gpus, **(rig or {})}, "test", CATALOGUE)
    fields: dict[str, Any] = {
        "gpu_indices": tuple(range(len(found.gpus))),
        "context": 32768,
        "kv_cache_type": "f16" if engine_name == "llama.cpp" else "bf16",
        "memory_fraction": 0.0 if engine_name == "llama.cpp" else 0.9,
        "build": chosen.method,
        "catalogue": CATALOGUE,
        **changes,
    }
    return Candidate(
        rig=found,
        service=Service.model_validate({"name": "minimax", "checkpoint": repo, **(service or {})}),
        model=CATALOGUE.models_by_name[entry.model],
        checkpoint=entry,
        engine=chosen,
        release=release,
        parallel=Parallel(**(parallel or {})),
        **fields,
    )
