"""Passes GPUs to an engine by UUID, as CUDA accepts them, or by the indices that they have at the engine's start."""

from __future__ import annotations

from rigup.plan import BoundPlan

# CUDA and llama.cpp accept UUIDs. SGLang 0.5.23 parses CUDA_VISIBLE_DEVICES as integers when it looks for NVLink
# (distributed/device_communicators/custom_all_reduce_utils.py); vLLM did up to at least 0.20 (its issues 20939, 41848).
BY_INDEX = ("vllm", "sglang")

SCRIPT = (
    'set -eu; found=""; for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do '
    'index=$(nvidia-smi --id="$gpu" --query-gpu=index --format=csv,noheader); found="$found,$index"; done; '
    'CUDA_VISIBLE_DEVICES="${found#,}"; export CUDA_VISIBLE_DEVICES; exec "$0" "$@"'
)


def with_its_gpus(plan: BoundPlan, words: tuple[str, ...]) -> tuple[str, ...]:
    """The command behind a shell that looks up the GPUs' current indices; unchanged if the engine accepts UUIDs."""
    assert plan.build is not None
    if not plan.gpu_uuids or plan.build.engine not in BY_INDEX:
        return words
    return ("/bin/sh", "-c", SCRIPT, *words)
