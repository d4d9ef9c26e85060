"""How a model can be split: every GPU must get whole attention heads, FP8 blocks and INT4 groups."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.parallelism import splits_by_tensor
from rigup.planner.rules.rule import Complaint, engine_name, refuses, warns

FP8_BLOCK = 128
MARLIN_TILE = 64
# Beyond sixteen GPUs, the engines need several hosts.
LARGEST_TENSOR_PARALLEL = 16
BALANCE_CHECK, BALANCE = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", 0.9


@refuses("llama-sizes", "llama-server b11434 --help: --split-mode; no pipeline, data or expert parallelism")
def llama_sizes(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp assigns whole layers to GPUs, or cuts each where it is asked by name; other sizes are refused."""
    service = candidate.service
    if candidate.engine.name != "llama.cpp":
        return
    sizes = {
        "tensor_parallel": None if splits_by_tensor(service) else service.tensor_parallel,
        "pipeline_parallel": service.pipeline_parallel,
        "data_parallel": service.data_parallel,
        "expert_parallel": 2 if service.expert_parallel else None,
    }
    named = [key for key, size in sizes.items() if (size or 1) > 1]
    whole_only = candidate.release.abilities.has("layer_split_only", candidate.architecture or "")
    if named == ["tensor_parallel"] and candidate.hosts == 1 and not whole_only:
        yield (
            "rigup plans llama.cpp with tensor_parallel only for services that name this engine",
            "set engine to llama.cpp, leave tensor_parallel out, or serve it with vLLM or SGLang",
        )
    elif named:
        yield (
            f"rigup does not plan llama.cpp with {' or '.join(named)}: it distributes whole layers over the GPUs",
            f"leave {' and '.join(named)} out, or serve it with vLLM or SGLang",
        )


@refuses("llama-cut-layers", "llama.cpp b11434 src/llama-model.cpp: llama_meta_device_get_split_state")
def llama_cut_layers(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp cuts layers for the GPUs of one host, with no experts in host memory and nothing drafted."""
    service, size = candidate.service, candidate.service.tensor_parallel or 1
    if candidate.engine.name != "llama.cpp" or not splits_by_tensor(service):
        return
    what = f"llama.cpp with tensor_parallel {size}"
    if candidate.hosts > 1:
        yield f"{what} is not planned over several hosts", "leave tensor_parallel out"
    elif size > len(candidate.gpus):
        yield f"{what} needs {size} GPUs, but the service has {len(candidate.gpus)}", "use a smaller tensor_parallel"
    if candidate.offloads_experts:
        yield (
            f"{what} is not counted with experts in host memory",
            "leave one of the two out",
        )
    if candidate.draft is not None:
        yield f"{what} is not counted with speculative decoding", "leave one of the two out"


@refuses(
    "tensor-parallel-heads",
    "vLLM and SGLang model code: attention heads and KV heads are split evenly, excess ranks replicate KV heads",
)
def tensor_parallel_heads(candidate: Candidate) -> Iterator[Complaint]:
    """Attention heads and KV heads must divide evenly over the tensor-parallel GPUs."""
    size = candidate.parallel.tensor
    if candidate.engine.name == "llama.cpp" or candidate.model.divides(size):
        return
    sizes = ", ".join(str(n) for n in range(1, LARGEST_TENSOR_PARALLEL + 1) if candidate.model.divides(n))
    whole = next(entry.divided for entry in candidate.model.attention if not entry.divides(size))
    yield (
        f"tensor_parallel {size} does not divide {whole}",
        f"choose tensor_parallel from {sizes}; for other numbers of GPUs use pipeline_parallel or llama.cpp",
    )


@refuses(
    "fp8-block",
    'vLLM 0.15.1 and 0.33.0 fp8.py, SGLang fp8.py: "not divisible by weight quantization block_n = 128"; sglang#23265',
)
def fp8_block(candidate: Candidate) -> Iterator[Complaint]:
    """Each GPU's slice of an expert, of the shared experts and of a dense layer must be whole FP8 blocks."""
    if candidate.checkpoint.scheme != "fp8_block128":
        return
    model, tensor = candidate.model, candidate.parallel.tensor
    for whose, width in (
        ("shared experts'", model.expert_intermediate * model.shared_experts),
        ("dense layers'", model.intermediate),
    ):
        if candidate.checkpoint.scope != "experts" and tensor > 1 and not _whole(width, tensor, FP8_BLOCK):
            sizes = [str(size) for size in range(1, tensor) if model.divides(size) and _whole(width, size, FP8_BLOCK)]
            yield _part_of_a_block(whose, width, tensor), f"choose tensor_parallel from {', '.join(sizes)}"
            return
    width, shards = model.expert_intermediate, candidate.expert_shards
    if not _whole(width, shards, FP8_BLOCK):
        yield (
            _part_of_a_block("experts'", width, shards),
            f"set expert_parallel to True: each GPU then holds whole experts of width {width}",
        )


def _part_of_a_block(whose: str, width: int, shards: int) -> str:
    return (
        f"the {whose} width per GPU, {width}/{shards} = {_slice(width, shards)}, is not a multiple of the FP8 block "
        f"size {FP8_BLOCK}"
    )


@refuses(
    "int4-group",
    "vLLM Marlin MoE: the slice must be a multiple of max(64, group size); group sizes 32, 64 and 128",
)
def int4_group(candidate: Candidate) -> Iterator[Complaint]:
    """Each GPU's slice of an expert must be a whole number of INT4 groups."""
    scheme, width, shards = candidate.checkpoint.scheme, candidate.model.expert_intermediate, candidate.expert_shards
    if not scheme.startswith("int4_g") or not width:
        return
    group = int(scheme.removeprefix("int4_g"))
    if not _whole(width, shards, max(MARLIN_TILE, group)):
        yield (
            f"the experts' width per GPU, {width}/{shards} = {_slice(width, shards)}, does not divide into INT4 "
            f"groups of {group}",
            "set expert_parallel to True, use fewer GPUs, or a checkpoint with groups of 32",
        )


@refuses(
    "sglang-unequal-memory",
    "SGLang 0.5.23 distributed/bootstrap.py: _check_tp_memory_balance raises unless a variable of environ.py is off",
)
def sglang_unequal_memory(candidate: Candidate) -> Iterator[Complaint]:
    """SGLang with tensor parallelism exits if one GPU of the service has less than 0.9 of another's memory."""
    checked = candidate.service.environment.get(BALANCE_CHECK, "1").lower() not in ("0", "false", "no", "n", "off")
    if candidate.engine.name != "sglang" or candidate.parallel.tensor == 1 or not checked:
        return
    sizes = sorted(gpu.memory_mib for gpu in candidate.gpus if gpu.memory_mib is not None)
    if sizes and sizes[0] < BALANCE * sizes[-1]:
        yield (
            f"SGLang refuses to start with tensor parallelism across GPUs this unequal ({sizes[0]:,} and "
            f"{sizes[-1]:,} MiB): each must have at least {BALANCE:.0%} of the largest",
            f'use equal GPUs, pipeline_parallel alone, vLLM, or environment {{"{BALANCE_CHECK}": "0"}}',
        )


@warns("nvfp4-expert-parallel", "vllm#32826 (closed as stale): M2.1 NVFP4 with expert parallel failed in GEMM on SM120")
def nvfp4_expert_parallel(candidate: Candidate) -> Iterator[Complaint]:
    """NVFP4 with expert parallelism has failed on SM120 cards."""
    on_sm120 = any(gpu.compute_capability.startswith("12.") for gpu in candidate.gpus)
    is_vllm = candidate.engine.name == "vllm"
    if is_vllm and candidate.checkpoint.scheme == "nvfp4" and candidate.parallel.expert > 1 and on_sm120:
        yield (
            f"NVFP4 with expert parallelism has failed on these GPUs in releases before {engine_name(candidate)}",
            "leave expert_parallel off: NVFP4 divides over 2, 4 and 8 GPUs without it",
        )


def _whole(width: int, shards: int, unit: int) -> bool:
    return width % shards == 0 and (width // shards) % unit == 0


def _slice(width: int, shards: int) -> str:
    return str(width // shards) if width % shards == 0 else f"{width / shards:.1f}"
