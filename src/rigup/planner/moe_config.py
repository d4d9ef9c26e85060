"""Tuned fused-MoE kernel configs: the file that an engine will look for, in its own spelling, and who has it.

Names: vLLM fused_moe.py `get_config_file_name`, SGLang fused_moe_triton_config.py, both held to by tests/golden.
"""

from __future__ import annotations

import functools
import json

from rigup.artifacts import LockedEnvironment
from rigup.catalogue import engine_files
from rigup.catalogue.moe_configs import MoeConfigFile, TunedKernel, best_for
from rigup.catalogue.versions import in_ranges
from rigup.lock import Lock
from rigup.plan import Finding, MoeConfig
from rigup.planner.candidate import Candidate
from rigup.rig import Gpu
from rigup.units import compute_capability

SHIPPED = engine_files.DATA / "moe_configs.json"
FIRST_WITH_FP8 = (8, 9)
DTYPE, BLOCK_SHAPE = "fp8_w8a8", (128, 128)

# Which kernels read a tuned config. Source: the callers of try_get_optimal_moe_config in vLLM 0.33.0 (triton_moe.py,
# fused_batched_moe.py) and in SGLang 0.5.23 (moe_runner/triton_utils); DeepGEMM, CUTLASS, Marlin and FlashInfer are
# not among them.
BACKEND_OPTIONS = {"vllm": "--moe-backend", "sglang": "--moe-runner-backend"}
READING_BACKENDS = {"vllm": ("auto", "triton", "batched_triton"), "sglang": ("auto", "triton", "lora_triton")}
# Before vLLM had the option: what turns its Triton kernels off.
OTHER_KERNELS = ("VLLM_USE_DEEP_GEMM", "VLLM_USE_FLASHINFER_MOE_FP8")


def moe_config(candidate: Candidate) -> MoeConfig | None:
    """The config that decides how fast the experts run, or None where no kernel runs that reads one.

    On different cards each looks for a file of its own: the first that nobody has is told.
    """
    if not has_tuned_kernels(candidate) or unread_because(candidate):
        return None
    found = [_of_card(candidate, gpu) for gpu in _cards(candidate)]
    told = next((config for config in found if config.status == "missing"), found[0])
    return told.model_copy(update={"pins": {file.path: file.sha256 for file in used_files(candidate)}})


def used_files(candidate: Candidate) -> tuple[MoeConfigFile, ...]:
    """The files of rigup's or the fleet's that the engine will be given, one for each kind of card; () for none."""
    return () if unread_because(candidate) or hides_its_own(candidate) else own_files(candidate)


def hides_its_own(candidate: Candidate) -> bool:
    """Whether a folder of ours would hide the engine's own configs: SGLang reads one or the other, and out of an image
    its own cannot be copied."""
    return candidate.build == "image" and candidate.engine.name == "sglang"


def own_files(candidate: Candidate) -> tuple[MoeConfigFile, ...]:
    """The files that there are for this shape and these cards, whether they will be read or not."""
    if not has_tuned_kernels(candidate):
        return ()
    found = (_own(candidate, gpu) for gpu in _cards(candidate))
    return tuple(file for file in found if file is not None)


def against_the_lock(config: MoeConfig | None, lock: Lock) -> MoeConfig | None:
    """The config with the files named that the lock does not pin."""
    if config is None:
        return None
    return config.model_copy(update={"unlocked": tuple(path for path in config.pins if path not in lock.moe_configs)})


def has_tuned_kernels(candidate: Candidate) -> bool:
    """Whether Triton's kernels can run these experts: block-FP8 ones on GPUs that compute in FP8, and not llama.cpp."""
    gpus = candidate.gpus
    if candidate.engine.name == "llama.cpp" or candidate.checkpoint.scheme != "fp8_block128" or not gpus:
        return False
    return all(compute_capability(gpu.compute_capability) >= FIRST_WITH_FP8 for gpu in gpus)


def unread_because(candidate: Candidate) -> str | None:
    """What of the user's flags and variables makes kernels run that read no config ("--moe-backend marlin"), if any."""
    engine, service = candidate.engine.name, candidate.service
    option = BACKEND_OPTIONS.get(engine, "")
    value = {name.replace("_", "-"): value for name, value in service.flags.items()}.get(option)
    if isinstance(value, str):
        return None if value in READING_BACKENDS[engine] else f"{option} {value}"
    if engine == "vllm" and option not in candidate.known_options:
        on = (name for name in OTHER_KERNELS if service.environment.get(name, "0") not in ("0", ""))
        return next((f"{name}=1" for name in on), None)
    return None


def shape(candidate: Candidate) -> tuple[int, int]:
    """E and N: the experts that one GPU holds, and the width of an expert's slice on it."""
    experts = candidate.experts // candidate.parallel.expert
    return experts, candidate.model.expert_intermediate // candidate.expert_shards


def config_filename(
    engine: str, experts: int, width: int, device: str, dtype: str = DTYPE, block: tuple[int, int] | None = BLOCK_SHAPE
) -> str:
    """The name of a config file as an engine looks for it. device: the card's name with underscores for spaces."""
    if engine == "vllm" and "H200" in device.split("_"):
        device = "NVIDIA_H200"  # vLLM takes the whole family for one card
    words = [f"E={experts}", f"N={width}", f"device_name={device}"]
    if dtype:
        words.append(f"dtype={dtype}")
    if block:
        # SGLang keeps the space inside the brackets, vLLM takes it out.
        words.append(f"block_shape=[{block[0]},{' ' if engine == 'sglang' else ''}{block[1]}]")
    return ",".join(words) + ".json"


def config_filename_for(engine: str, tuned: TunedKernel) -> str:
    """The name of a tuned kernel's file as an engine looks for it."""
    device = "_".join(tuned.device.replace("/", " ").split())
    return config_filename(engine, tuned.experts, tuned.width, device, tuned.dtype, tuned.block_shape)


def triton_version(environment: LockedEnvironment | None) -> str | None:
    """The version of Triton in a locked environment; None where nothing is locked yet."""
    wheels = environment.files if environment else ()
    return next((name.split("-")[1].partition("+")[0] for name in wheels if name.startswith("triton-")), None)


def locked_otherwise(candidate: Candidate, lock: Lock) -> tuple[Finding, ...]:
    """The files that are not what the lock says, as reasons to refuse."""
    return tuple(
        Finding(
            rule="moe-config-lock",
            message=f"files/moe_configs/{file.path}: sha256 is {file.sha256}, but rigup.lock has {locked}",
            hint="restore the file from version control, or accept it as it is: rigup lock --upgrade moe-configs",
            source="rigup.lock",
        )
        for file in used_files(candidate)
        if (locked := lock.moe_configs.get(file.path, file.sha256)) != file.sha256
    )


def _cards(candidate: Candidate) -> tuple[Gpu, ...]:
    return tuple({gpu.name: gpu for gpu in candidate.gpus}.values())


def _of_card(candidate: Candidate, gpu: Gpu) -> MoeConfig:
    engine = candidate.engine.name
    experts, width = shape(candidate)
    name = config_filename(engine, experts, width, gpu.moe_config_name)
    if _own(candidate, gpu) is not None and not hides_its_own(candidate):
        status = "files"
    else:
        shipped = in_ranges(candidate.version, _shipped()[engine].get(name, ""))
        status = "engine" if shipped else "missing"
    return MoeConfig.model_validate(
        {"file": name, "status": status, "experts": experts, "width": width, "device": gpu.name}
    )


def _own(candidate: Candidate, gpu: Gpu) -> MoeConfigFile | None:
    kernel = (*shape(candidate), DTYPE, BLOCK_SHAPE, gpu.name)
    return best_for(candidate.moe_configs, kernel, candidate.triton)


@functools.cache
def _shipped() -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = json.loads(SHIPPED.read_text())
    return data
