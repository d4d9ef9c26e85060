"""What a user should know before serving: licences, code from the hub, pruned experts, slow memory, untuned kernels."""

from __future__ import annotations

from collections.abc import Iterator

from rigup.planner.candidate import Candidate
from rigup.planner.moe_config import moe_config
from rigup.planner.rules.rule import Complaint, refuses, warns


@refuses("context-limit", "max_position_embeddings in the model's config")
def context_limit(candidate: Candidate) -> Iterator[Complaint]:
    """The context must not exceed what the model was made for."""
    model = candidate.model
    if candidate.context > model.context:
        yield (
            f"{model.name} was made for {model.context:,} tokens of context, not {candidate.context:,}",
            f"set context to {model.context} or less",
        )


@warns("licence", "the model's LICENSE")
def licence(candidate: Candidate) -> Iterator[Complaint]:
    """Models whose licence does not allow every use."""
    model = candidate.model
    if model.license_note or not model.commercial:
        yield model.license_note or f"the licence of {model.name} does not allow commercial use", ""


@warns("trust-remote-code", "vLLM and SGLang have MiniMax and Llama classes of their own; so has transformers 5")
def trust_remote_code(candidate: Candidate) -> Iterator[Complaint]:
    """Code from the model's repository is run on the host."""
    if candidate.service.trust_remote_code and candidate.engine.name != "llama.cpp":
        yield (
            f"trust_remote_code runs code from {candidate.checkpoint.repo} as the service's user",
            f"leave it out: {candidate.engine.title} knows {candidate.model.architecture} itself",
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


@warns("host-offload", "memory bandwidths: host memory gives tens of GB/s, these cards give hundreds to thousands")
def host_offload(candidate: Candidate) -> Iterator[Complaint]:
    """Weights in host memory slow every token down."""
    if candidate.cpu_moe_layers:
        yield (
            f"the experts of {candidate.cpu_moe_layers} of {candidate.model.layers} layers lie in host memory: every "
            "token waits for it, several times slower than from VRAM",
            "a smaller quantisation that fits the cards is faster",
        )
    elif candidate.cpu_offload_gib:
        yield (
            f"{candidate.cpu_offload_gib} GiB of weights a GPU lie in host memory and cross PCIe for every token",
            "a smaller quantisation that fits the cards is faster",
        )


@warns("moe-config", "fused-MoE config files in the engine's wheel, per version")
def untuned_kernel(candidate: Candidate) -> Iterator[Complaint]:
    """No tuned kernel config exists for these experts on this card."""
    config = moe_config(candidate)
    on_sm120 = any(gpu.compute_capability.startswith("12.") for gpu in candidate.gpus)
    # Elsewhere the engines prefer kernels that read no such file.
    if config is not None and config.status == "missing" and on_sm120:
        yield (
            f"{candidate.engine.title} has no tuned expert kernel for this card and shape: decoding could be faster",
            "the engine's own tuner makes one on such a rig",
        )
