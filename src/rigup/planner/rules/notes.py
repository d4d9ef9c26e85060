"""What a user should know before serving: licences, code from the hub, pruned experts, slow memory, untuned kernels."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.engine_memory import OFFLOAD_MICRO_BATCH
from rigup.planner.memory.llama_cpp_buffers import DOWN_ON_PROCESSOR
from rigup.planner.memory.overhead import MARGIN_MIB
from rigup.planner.memory.remedies import for_context, instead_of_offload
from rigup.planner.moe_config import (
    hides_its_own,
    kernel_of,
    lacks_tuned_kernel,
    own_files,
    unread_because,
    used_files,
)
from rigup.planner.offload import experts_in_words
from rigup.planner.rules.rule import Complaint, refuses, warns


@refuses("context-limit", "max_position_embeddings in the configuration of the model or of its checkpoint")
def context_limit(candidate: Candidate) -> Iterator[Complaint]:
    """The context must not exceed the maximum of the model and of its checkpoint."""
    longest = candidate.own_context
    if candidate.context > longest:
        whose = candidate.model.name if longest == candidate.model.context else candidate.checkpoint.label
        yield (
            f"{whose} supports {longest:,} tokens of context, not {candidate.context:,}",
            f"set context to {longest} or less",
        )


@warns("licence", "the model's LICENSE")
def licence(candidate: Candidate) -> Iterator[Complaint]:
    """Some models' licences do not allow every use."""
    model = candidate.model
    if model.license_note or model.commercial is False:
        yield model.license_note or f"the licence of {model.name} does not allow commercial use", ""


@warns("trust-remote-code", "vLLM, SGLang and transformers 5 have their own MiniMax and Llama classes")
def trust_remote_code(candidate: Candidate) -> Iterator[Complaint]:
    """Code from the model's repository runs on the host."""
    if candidate.service.trust_remote_code and candidate.engine.name != "llama.cpp":
        own = None if candidate.release.lacks(candidate.model, candidate.checkpoint) else candidate.architecture
        yield (
            f"trust_remote_code runs code from {candidate.checkpoint.repo} as the service's user",
            f"leave it out: {candidate.engine.title} knows {own} itself" if own else "",
        )


@warns("pruned-experts", "the checkpoint's config: fewer experts than the model was trained with")
def pruned_experts(candidate: Candidate) -> Iterator[Complaint]:
    """A checkpoint with experts removed is a different model."""
    if candidate.checkpoint.experts is not None and candidate.checkpoint.experts < candidate.model.experts:
        yield (
            f"{candidate.checkpoint.repo} keeps {candidate.checkpoint.experts} of {candidate.model.experts} experts: "
            "compare its answers with the whole model's before relying on it",
            "",
        )


@warns(
    "memory-margin",
    "docs/accuracy.md: errors of the estimate, and the memory that llama-server's --fit-target keeps free",
)
def memory_margin(candidate: Candidate) -> Iterator[Complaint]:
    """A plan that fits by less than the error of the estimate may fail to start."""
    if candidate.is_tight:
        what = "KV cache" if candidate.engine.name == "vllm" else "GPU memory"
        yield (
            f"only {candidate.margin_mib:,} MiB of {what} to spare, less than the {MARGIN_MIB:,} MiB error margin of "
            "the estimate: the engine may fail to start",
            for_context(candidate),
        )


@warns("idle-gpus", "the plan: the GPUs of the rig that the service leaves out")
def idle_gpus(candidate: Candidate) -> Iterator[Complaint]:
    """GPUs of the rig that the plan does not use are said."""
    used, service = set(candidate.local_gpus), candidate.service
    idle = [index for index in range(len(candidate.rig.gpus)) if index not in used]
    if not idle or not used or service.gpus is not None or service.swap:
        return
    which = f"GPU {idle[0]} is" if len(idle) == 1 else f"GPUs {_listed(idle)} are"
    yield (
        f"{which} idle: the service uses {len(used)} of {len(candidate.rig.gpus)}",
        "serve something else on the rest (gpus in each service), or set data_parallel or pipeline_parallel",
    )


def _listed(numbers: list[int]) -> str:
    """Numbers in a row as one: "8-11", "1, 3"."""
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(str(number) for number in numbers)


@warns("down-on-processor", "llama.cpp b11434 src/llama-graph.cpp, build_moe_ffn, and ggml-cuda's supports_op")
def down_on_processor(candidate: Candidate) -> Iterator[Complaint]:
    """llama.cpp computes a part of some models' experts on the processor, wherever their weights are."""
    if (
        candidate.engine.name == "llama.cpp"
        and candidate.gpus
        and candidate.model.gguf_architecture in DOWN_ON_PROCESSOR
    ):
        yield (
            f"llama.cpp computes the down projections of {candidate.model.name}'s experts on the processor and copies "
            "their weights there at each step: every token is far slower than estimated",
            "serve another checkpoint of it with vLLM or SGLang",
        )


@warns("host-offload", "memory bandwidths: host memory gives tens of GB/s, these cards give hundreds to thousands")
def host_offload(candidate: Candidate) -> Iterator[Complaint]:
    """Weights in host memory slow down every token."""
    if candidate.offloads_experts:
        whose = experts_in_words(candidate)
        larger = candidate.copies_experts and candidate.batched_tokens == OFFLOAD_MICRO_BATCH
        prompts = f"; prompts are read {OFFLOAD_MICRO_BATCH:,} tokens at a time, which is faster" if larger else ""
        yield (
            f"{whose} {'is' if whose[0].isdigit() else 'are'} in host memory: every token reads from it, several times "
            f"slower than from VRAM{prompts}",
            instead_of_offload(candidate),
        )
    elif candidate.cpu_offload_gib:
        yield (
            f"{candidate.cpu_offload_gib} GiB of each GPU's weights are in host memory and cross PCIe for every token",
            instead_of_offload(candidate),
        )


@warns("offload-experts", "vLLM config/offload.py and SGLang exec_.py: their offload takes weights as they come")
def offload_experts(candidate: Candidate) -> Iterator[Complaint]:
    """Only llama.cpp can keep the experts, and nothing else, in host memory."""
    if candidate.service.offload == "experts" and candidate.engine.name != "llama.cpp" and candidate.gpus:
        yield f"{candidate.engine.title} cannot offload experts alone", "use llama.cpp, or leave offload out"


@warns("moe-config", "fused-MoE config files in the engine's wheel, per version")
def untuned_kernel(candidate: Candidate) -> Iterator[Complaint]:
    """No tuned kernel config exists for these experts on this card."""
    kernel = kernel_of(candidate)
    on_sm120 = any(gpu.compute_capability.startswith("12.") for gpu in candidate.gpus)
    # On other cards, the engines prefer kernels for FP8 that do not read such files.
    if kernel and (on_sm120 or not kernel.dtype) and lacks_tuned_kernel(candidate):
        yield (
            f"{candidate.engine.title} has no tuned expert kernel for this card and shape: decoding could be faster",
            "tune it on a host with this card: rigup tune",
        )


@warns("moe-config-unread", "which kernels read a config: callers of try_get_optimal_moe_config in vLLM and SGLang")
def unread_config(candidate: Candidate) -> Iterator[Complaint]:
    """A tuned kernel config exists, but flags of the service select kernels that do not read it."""
    because, used = unread_because(candidate), own_files(candidate)
    if because and used:
        yield (
            f"{because} does not read tuned kernels, so files/moe_configs/{used[0].path} has no effect",
            "leave the flag out to use Triton's kernels with this file, or delete the file",
        )


@warns("moe-config-image", "SGLang reads SGLANG_MOE_CONFIG_DIR instead of its own folder, which is in the image")
def config_beside_an_image(candidate: Candidate) -> Iterator[Complaint]:
    """A tuned kernel config exists, but SGLang runs from an image and would lose its own configs."""
    used = own_files(candidate)
    if hides_its_own(candidate) and used:
        yield (
            f"files/moe_configs/{used[0].path} is not used: with it, SGLang in an image would lose its built-in "
            "kernels",
            "",
        )


@warns(
    "moe-config-triton", "SGLang fused_moe_triton_config.py: a config of Triton 3.1.0 was slower than none with 3.2.0"
)
def config_of_another_triton(candidate: Candidate) -> Iterator[Complaint]:
    """The tuned kernel config was made with a different version of Triton than the build's."""
    for file in used_files(candidate):
        if candidate.triton and file.tuned.triton != candidate.triton:
            yield (
                f"files/moe_configs/{file.path} was tuned with Triton {file.tuned.triton}, but the build has "
                f"{candidate.triton}: it may be slower than no file",
                "compare it with the engine's own kernels: rigup tune",
            )
