"""What the engines' command lines share: options, names, variables and limits, and how options become words."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.layout import weights_folder
from rigup.plan import Checkpoint
from rigup.planner.abilities import parsers_of
from rigup.planner.candidate import Candidate
from rigup.service import FlagValue

UNPINNED = "main"
READ_BYTES_PER_SECOND = 250_000_000
WARM_UP_SECONDS = 300
# An engine of wheels compiles GPU kernels in its first start, and the modules of FlashInfer take minutes each
# (docs/measurements): a limit for what still works, since an engine that fails ends by itself.
COMPILE_SECONDS = 1800

Options = dict[str, FlagValue]


def overlaid(options: Options, flags: Mapping[str, FlagValue]) -> Options:
    """The options with the user's flags: a flag replaces the option of the same name, False removes it."""
    merged = {**options, **flags}
    return {name: value for name, value in merged.items() if value is not False}


def words(options: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """The words of a command: True is a bare switch, a list becomes several words, a dict becomes JSON.

    options: as `overlaid` returns them.
    """
    found: list[str] = []
    for name, value in options.items():
        found.append(name)
        if value is not True:
            found.extend(_texts(value))
    return tuple(found)


def _texts(value: FlagValue) -> list[str]:
    if isinstance(value, dict):
        return [json.dumps(value, separators=(",", ":"))]
    if isinstance(value, list):
        return [json.dumps(item) if isinstance(item, dict | list) else str(item) for item in value]
    return [str(value)]


def model_path(entry: CheckpointEntry, checkpoint: Checkpoint) -> str:
    """The path for the engine of an entry of the catalogue: a file of the checkpoint, or its folder.

    An unpinned revision appears as "main", and a GGUF file whose name is not known yet as its quantisation.
    """
    folder = weights_folder(checkpoint.repo, checkpoint.revision or UNPINNED)
    if entry.scheme == "gguf" and not checkpoint.entry:
        return f"{folder}/<{checkpoint.quant}>.gguf"
    return f"{folder}/{checkpoint.entry}" if checkpoint.entry else folder


def kv_cache_type(candidate: Candidate) -> Options:
    """The KV cache's type, unless the engine is certain to choose the plan's type by itself.

    The automatic choice is bf16, unless the engine takes another type for the model, or the checkpoint's configuration
    names one, which the engines follow.
    """
    own = candidate.own_cache_type
    automatic = candidate.kv_cache_type == (own.name if own and not own.told else "bf16")
    automatic = automatic and not _may_name_a_cache(candidate.checkpoint)
    name = None if automatic else candidate.release.kv_cache_name(candidate.kv_cache_type)
    return {"--kv-cache-dtype": name} if name else {}


def _may_name_a_cache(checkpoint: CheckpointEntry) -> bool:
    """Whether the configuration names a KV cache. One that was not read may: most of ModelOpt's name FP8."""
    if checkpoint.kv_cache_type is None:
        return checkpoint.method == "modelopt" or checkpoint.weight_format == "nvfp4"
    return checkpoint.kv_cache_type != "auto"


def parsers(candidate: Candidate) -> Options:
    """The parsers of tool calls and reasoning, if the service wants them and the release has them."""
    known = parsers_of(candidate)
    chosen: Options = {}
    if known.tool and candidate.service.tools:
        chosen["--tool-call-parser"] = known.tool[0]
    if known.reasoning and candidate.service.reasoning:
        chosen["--reasoning-parser"] = known.reasoning[0]
    return chosen


def sampling(candidate: Candidate) -> dict[str, int | float]:
    """Maps parameter to value; counts such as top_k are whole numbers, as the servers require."""
    merged = {**candidate.model.sampling, **candidate.service.sampling}
    return {name: int(value) if name == "top_k" else value for name, value in merged.items()}


def sampling_json(candidate: Candidate) -> str | None:
    """The sampling defaults as one word of compact JSON; None without values."""
    found = sampling(candidate)
    return json.dumps(found, separators=(",", ":")) if found else None


def gpu_variables(candidate: Candidate) -> dict[str, str]:
    """Makes CUDA count GPUs in the order of NVML and the plan, and selects the GPUs if not all are used.

    Source: CUDA C++ programming guide, "CUDA environment variables"; CUDA's default order is fastest first.
    """
    if not candidate.rig.gpus:
        return {}
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if candidate.local_gpus != tuple(range(len(candidate.rig.gpus))):
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in candidate.local_gpus)
    return variables


def start_timeout_s(candidate: Candidate, checkpoint: Checkpoint) -> int:
    """Seconds: the service's own, otherwise the time to read all bytes at half a SATA disk's speed plus the warm-up."""
    if candidate.service.start_timeout is not None:
        return candidate.service.start_timeout
    compiles = candidate.build == "wheel" and bool(candidate.rig.gpus)
    return (COMPILE_SECONDS if compiles else WARM_UP_SECONDS) + checkpoint.bytes // READ_BYTES_PER_SECOND
