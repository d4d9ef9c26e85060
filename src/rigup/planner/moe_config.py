"""Tuned fused-MoE kernel configs: the file name that an engine looks for, and whether rigup or the engine has the file.

Names: vLLM fused_moe.py `get_config_file_name`, SGLang fused_moe_triton_config.py; tests/golden compares with both.
"""

from __future__ import annotations

import functools
import json
from typing import Literal, NamedTuple

from rigup.artifacts import LockedEnvironment
from rigup.catalogue.data_files import DATA
from rigup.catalogue.moe_configs import MoeConfigFile, TunedKernel, best_for
from rigup.catalogue.versions import in_ranges, version_key
from rigup.lock import Lock
from rigup.plan import Finding, MoeConfig
from rigup.planner.candidate import Candidate
from rigup.rig import Gpu

SHIPPED = DATA / "engines" / "moe_configs.json"
FIRST_WITH_FP8 = (8, 9)


class Kernel(NamedTuple):
    """What a config is for, in the engines' names: dtype "" is 16 bits. block_shape: of the weights' scales."""

    dtype: str
    block_shape: tuple[int, int] | None


# By how the experts are stored. Source: _get_config_dtype_str of vLLM 0.33.0, get_config_dtype_str of SGLang 0.5.23.
KERNELS = {"fp8_block128": Kernel("fp8_w8a8", (128, 128)), "bf16": Kernel("", None)}

# Which kernels read a tuned config. Source: the callers of try_get_optimal_moe_config in vLLM 0.33.0 (triton_moe.py,
# fused_batched_moe.py) and in SGLang 0.5.23 (moe_runner/triton_utils); DeepGEMM, CUTLASS, Marlin and FlashInfer are
# not among them.
BACKEND_OPTIONS = {"vllm": "--moe-backend", "sglang": "--moe-runner-backend"}
READING_BACKENDS = {"vllm": ("auto", "triton", "batched_triton"), "sglang": ("auto", "triton", "lora_triton")}
# Before vLLM had the option: variables that turn its Triton kernels off, by dtype.
OTHER_KERNELS = {
    "fp8_w8a8": ("VLLM_USE_DEEP_GEMM", "VLLM_USE_FLASHINFER_MOE_FP8"),
    "": ("VLLM_USE_FLASHINFER_MOE_FP16",),
}
# Which cards run experts in FlashInfer or DeepGEMM if nothing is said, by engine and dtype, and by the first release
# that does so. Sources: fused_moe/oracle/unquantized.py in vLLM's wheels (0.19.1 asked for a variable, 0.23.0 took
# Hopper out); oracle/fp8.py, triton_deep_gemm_moe.py and platforms/cuda.py, support_deep_gemm, in those of 0.21.0 to
# 0.33.0 (0.24.0 took 12.x in; it always takes DeepGEMM where that scales by powers of two, its default); SGLang 0.5.23
# srt/arg_groups/overrides.py and model_overrides/: on 10.x alone, for most families of models.
OTHERS_CHOSEN = {
    ("vllm", ""): (("0.23.0", (10, 0), (99, 0)), ("0.20.0", (9, 0), (99, 0))),
    ("vllm", "fp8_w8a8"): (("0.24.0", (10, 0), (12, 9)), ("0.21.0", (10, 0), (10, 9))),
    ("sglang", ""): (("0", (10, 0), (10, 9)),),
}
# Who runs Triton on 12.x after all. Source: vLLM 0.21.0 to 0.33.0 utils/deep_gemm.py, should_auto_disable_deep_gemm.
WITHOUT_DEEP_GEMM = ("Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM")
DEEP_GEMM = ("VLLM_USE_DEEP_GEMM", "VLLM_MOE_USE_DEEP_GEMM")


def moe_config(candidate: Candidate) -> MoeConfig | None:
    """The config that decides how fast the experts run; None if no running kernel reads one.

    Each kind of card looks for its own file: returns the first one that is missing.
    """
    if not has_tuned_kernels(candidate) or unread_because(candidate):
        return None
    if not used_files(candidate) and not _is_chosen(candidate):
        return None
    found = [_of_card(candidate, gpu) for gpu in _cards(candidate)]
    first_missing = next((config for config in found if config.status == "missing"), found[0])
    return first_missing.model_copy(update={"pins": {file.path: file.sha256 for file in used_files(candidate)}})


def lacks_tuned_kernel(candidate: Candidate) -> bool:
    """Whether a running kernel reads a config that there is not for one of the cards."""
    config = moe_config(candidate)
    return config is not None and config.status == "missing"


def takes_own_files(candidate: Candidate) -> bool:
    """Whether rigup puts tuned kernel configs on the host: only Triton's kernels read them."""
    config = moe_config(candidate)
    return config is not None and config.status == "files"


def used_files(candidate: Candidate) -> tuple[MoeConfigFile, ...]:
    """The toolkit's or the fleet's files for the engine, one for each kind of card; () for none."""
    return () if unread_because(candidate) or hides_its_own(candidate) else own_files(candidate)


def hides_its_own(candidate: Candidate) -> bool:
    """Whether a folder with rigup's files would hide the engine's own: SGLang reads only one folder, and rigup cannot
    copy SGLang's own files out of an image."""
    return candidate.build == "image" and candidate.engine.name == "sglang"


def own_files(candidate: Candidate) -> tuple[MoeConfigFile, ...]:
    """The available files for this shape and these cards, even if the engine does not read them."""
    if not has_tuned_kernels(candidate):
        return ()
    found = (_own(candidate, gpu) for gpu in _cards(candidate))
    return tuple(file for file in found if file is not None)


def against_the_lock(config: MoeConfig | None, lock: Lock) -> MoeConfig | None:
    """The config with a list of the files that the lock does not pin."""
    if config is None:
        return None
    return config.model_copy(update={"unlocked": tuple(path for path in config.pins if path not in lock.moe_configs)})


def kernel_of(candidate: Candidate) -> Kernel | None:
    """What Triton's kernels could run its experts as; None if they cannot, or if there are no experts."""
    if not candidate.experts or candidate.engine.name == "llama.cpp" or not candidate.gpus:
        return None
    kernel = KERNELS.get(candidate.checkpoint.expert_scheme or candidate.checkpoint.scheme)
    computes = all(gpu.capability >= FIRST_WITH_FP8 for gpu in candidate.gpus)
    return kernel if kernel is None or not kernel.dtype or computes else None


def has_tuned_kernels(candidate: Candidate) -> bool:
    """Whether Triton's kernels can run its experts: block FP8 on GPUs that compute in FP8, or 16 bits."""
    return kernel_of(candidate) is not None


def unread_because(candidate: Candidate) -> str | None:
    """The flag or variable of the user that selects kernels without configs ("--moe-backend marlin"); None if none."""
    engine, service = candidate.engine.name, candidate.service
    option = BACKEND_OPTIONS.get(engine, "")
    value = {name.replace("_", "-"): value for name, value in service.flags.items()}.get(option)
    if isinstance(value, str):
        return None if value in READING_BACKENDS[engine] else f"{option} {value}"
    if engine == "vllm" and option not in candidate.known_options:
        on = (name for name in other_kernels(candidate) if service.environment.get(name, "0") not in ("0", ""))
        return next((f"{name}=1" for name in on), None)
    return None


def other_kernels(candidate: Candidate) -> tuple[str, ...]:
    """vLLM's variables that select kernels without configs for such experts, where it has no option for it."""
    kernel = kernel_of(candidate)
    return OTHER_KERNELS[kernel.dtype] if kernel else ()


def shape(candidate: Candidate) -> tuple[int, int]:
    """E and N: experts per GPU, and the width of an expert's slice on the GPU."""
    experts = candidate.experts // candidate.parallel.expert
    return experts, candidate.model.expert_intermediate // candidate.expert_shards


def config_filename(
    engine: str, experts: int, width: int, device: str, dtype: str, block: tuple[int, int] | None
) -> str:
    """The name of the config file that an engine looks for. device: the card's name, with underscores for spaces."""
    if engine == "vllm" and "H200" in device.split("_"):
        device = "NVIDIA_H200"  # vLLM treats the whole family as one card
    words = [f"E={experts}", f"N={width}", f"device_name={device}"]
    if dtype:
        words.append(f"dtype={dtype}")
    if block:
        # SGLang keeps the space inside the brackets, vLLM removes it.
        words.append(f"block_shape=[{block[0]},{' ' if engine == 'sglang' else ''}{block[1]}]")
    return ",".join(words) + ".json"


def config_filename_for(engine: str, tuned: TunedKernel) -> str:
    """The name of a tuned kernel's file that an engine looks for."""
    device = "_".join(tuned.device.replace("/", " ").split())
    return config_filename(engine, tuned.experts, tuned.width, device, tuned.dtype, tuned.block_shape)


def triton_version(environment: LockedEnvironment | None) -> str | None:
    """The version of Triton in a locked environment; None if it is unknown."""
    wheels = environment.files if environment else ()
    return next((name.split("-")[1].partition("+")[0] for name in wheels if name.startswith("triton-")), None)


def locked_otherwise(candidate: Candidate, lock: Lock) -> tuple[Finding, ...]:
    """A refusal for each file that differs from the lock."""
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
    experts, width = shape(candidate)
    kernel = kernel_of(candidate)
    assert kernel is not None
    name = config_filename(candidate.engine.name, experts, width, gpu.moe_config_name, *kernel)
    status = _status(candidate, gpu, name)
    return MoeConfig(file=name, status=status, experts=experts, width=width, device=gpu.name, **kernel._asdict())


def _is_chosen(candidate: Candidate) -> bool:
    """Whether the engine may choose Triton's kernels by itself, or is told to."""
    kernel, engine = kernel_of(candidate), candidate.engine.name
    asked = {name.replace("_", "-") for name in candidate.service.flags}
    if kernel is None or BACKEND_OPTIONS[engine] in asked:
        return kernel is not None
    capabilities = [gpu.capability for gpu in candidate.gpus]
    if kernel.dtype and min(capabilities) >= (12, 0) and _leaves_out_deep_gemm(candidate):
        return True
    release = version_key(candidate.version)
    for since, first, last in OTHERS_CHOSEN.get((engine, kernel.dtype), ()):
        if release >= version_key(since):
            return not any(first <= capability <= last for capability in capabilities)
    return True


def _leaves_out_deep_gemm(candidate: Candidate) -> bool:
    off = any(candidate.service.environment.get(name) == "0" for name in DEEP_GEMM)
    return off or any(name in WITHOUT_DEEP_GEMM for name in candidate.model.architectures)


def _status(candidate: Candidate, gpu: Gpu, name: str) -> Literal["files", "engine", "missing"]:
    """Who has the file of that name for the card."""
    if _own(candidate, gpu) is not None and not hides_its_own(candidate):
        return "files"
    shipped = in_ranges(candidate.version, _shipped()[candidate.engine.name].get(name, ""))
    return "engine" if shipped else "missing"


def _own(candidate: Candidate, gpu: Gpu) -> MoeConfigFile | None:
    kernel = (*shape(candidate), *(kernel_of(candidate) or ()), gpu.name)
    return best_for(candidate.catalogue.moe_configs, kernel, candidate.triton)


@functools.cache
def _shipped() -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = json.loads(SHIPPED.read_text())
    return data
