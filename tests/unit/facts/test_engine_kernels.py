"""Kernels that engines say they chose, from lines of their own logs."""

from __future__ import annotations

import pytest

from rigup.facts.engine_kernels import WORDS, Kernels, read_kernels

# logged by vLLM 0.33.0 and SGLang 0.5.23 on simulated GPUs, MiniMax M2 in block FP8; server_args shortened
VLLM = """
INFO 06:59:46 [__init__.py:778] Selected MarlinFP8ScaledMMLinearKernel for Fp8LinearMethod
INFO 06:59:47 [cuda.py:508] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].
INFO 06:59:47 [flash_attn.py:1122] Using FlashAttention version 2
INFO 06:59:47 [fp8.py:536] Using MARLIN Fp8 MoE backend out of potential backends: ['TRITON', 'MARLIN'].
"""
# with --attention-backend, platforms/cuda.py of vLLM 0.33.0
ASKED = "INFO 06:59:47 [cuda.py:448] Using AttentionBackendEnum.FLASHINFER_MLA backend."
SGLANG = (
    "[2026-11-28 04:11:19] server_args={'attention_backend': 'fa3', 'decode_attention_backend': None, "
    "'sampling_backend': 'flashinfer', 'fp8_gemm_runner_backend': 'auto', 'moe_runner_backend': 'triton', "
    "'speculative_moe_runner_backend': 'auto'}"
)


@pytest.mark.parametrize(
    ("logged", "chosen"),
    [
        (VLLM, {"attention": ("FLASH_ATTN",), "linear": ("MarlinFP8ScaledMMLinearKernel",), "experts": ("MARLIN",)}),
        (SGLANG, {"attention": ("fa3",), "experts": ("triton",), "sampling": ("flashinfer",)}),
        (
            "Using 'FLASHINFER_TRTLLM' NvFp4 MoE backend out of potential backends: []",
            {"experts": ("FLASHINFER_TRTLLM",)},
        ),
        (ASKED, {"attention": ("FLASHINFER_MLA",)}),
        ("Using TRITON MLA prefill backend.", {}),
        ("Using TRITON W4A8 Int8 MoE backend out of potential backends: []", {"experts": ("TRITON",)}),
        ("Selected A for Fp8LinearMethod\nSelected B for ModelOptNvFp4LinearMethod", {"linear": ("A", "B")}),
        ("INFO: Application startup complete.", {}),
        ("x" * 70_000 + "Using A attention backend out of", {}),
    ],
)
def test_what_was_chosen(logged: str, chosen: dict[str, tuple[str, ...]]) -> None:
    assert read_kernels(logged.splitlines()) == Kernels(chosen)


@pytest.mark.parametrize(
    ("logged", "what"),
    [
        (
            "WARNING FlashInfer kernels are disabled: flashinfer-cubin is not installed and nvcc is missing",
            "FlashInfer",
        ),
        ("WARNING Failed to import vendored deep_gemm: libcudart.so.13: no such file", "DeepGEMM"),
    ],
)
def test_what_was_left_out(logged: str, what: str) -> None:
    assert read_kernels([logged, logged]).left_out == (what,)


def test_the_host_sends_each_line_that_is_read() -> None:
    words = WORDS.split("|")
    lines = [line for line in (*VLLM.splitlines(), ASKED, *SGLANG.splitlines()) if read_kernels([line]) != Kernels({})]
    assert len(lines) == 5
    assert all(any(word.replace(".*", "MarlinFP8ScaledMMLinearKernel") in line for word in words) for line in lines)
