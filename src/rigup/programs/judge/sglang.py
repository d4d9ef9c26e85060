"""Asks SGLang what it makes of a command line on a rig that is not there. Run by a Python that has SGLang's CUDA wheel:

    python -m rigup.programs.judge.sglang < CASES > ANSWERS        a line of JSON for each

Cases and answers are as in vllm.py. SGLang's own ServerArgs resolve themselves as its server's do before any process
starts: kernels, page, types and limits. The model is not built, so that weights and the cache's pools are not told.
"""

from __future__ import annotations

import os
from typing import Any

from . import simulated_gpus
from .cases import answer_each, model_folder, of_this_machine, stopped

SETTLED = (
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "moe_runner_backend",
    "fp8_gemm_runner_backend",
    "fp4_gemm_runner_backend",
    "sampling_backend",
    "mm_attention_backend",
    "linear_attn_backend",
    "mamba_backend",
    "kv_cache_dtype",
    "page_size",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "max_running_requests",
    "mem_fraction_static",
    "quantization",
    "context_length",
)


def judged(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to one case. reached: "arguments" or "configuration"."""
    from sglang.srt.server_args import prepare_server_args

    answer: dict[str, Any] = {"reached": "nothing"}
    try:
        taken = prepare_server_args(["--model-path", model_folder(case), *case["arguments"], "--skip-tokenizer-init"])
        answer["reached"] = "arguments"
        taken.resolve_once()
        from sglang.srt.arg_groups.overrides import resolving_view

        view = resolving_view(taken)
        answer["settled"] = {name: getattr(view, name) for name in SETTLED if hasattr(view, name)}
        answer["reached"] = "configuration"
    except (Exception, SystemExit) as error:
        answer["stopped"] = stopped(error)
    return answer


def main() -> None:
    """Answers each case of standard input, in a fork of its own."""

    def load(first: dict[str, Any]) -> None:
        """What all forks share."""
        os.environ.update(first["environment"])
        simulated_gpus.install(of_this_machine(first["gpu"]), first["gpus"], "pynvml")
        import sglang.srt.arg_groups.overrides
        import sglang.srt.arg_groups.pipeline
        import sglang.srt.configs.model_config
        import sglang.srt.model_loader
        import sglang.srt.models.registry
        import sglang.srt.server_args  # noqa: F401

    answer_each(load, judged)


if __name__ == "__main__":
    main()
