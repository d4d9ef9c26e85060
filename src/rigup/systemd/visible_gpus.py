"""How an engine is told its GPUs by UUID: as CUDA takes them, or by the indices that they have when it starts."""

from __future__ import annotations

from rigup.plan import BoundPlan

# CUDA and llama.cpp take UUIDs. SGLang 0.5.23 makes integers of CUDA_VISIBLE_DEVICES when it looks for NVLink
# (distributed/device_communicators/custom_all_reduce_utils.py), vLLM did up to 0.20 at least (its issues 20939, 41848).
BY_INDEX = ("vllm", "sglang")

SCRIPT = (
    'set -eu; found=""; for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , " "); do '
    'index=$(nvidia-smi --id="$gpu" --query-gpu=index --format=csv,noheader); found="$found,$index"; done; '
    'CUDA_VISIBLE_DEVICES="${found#,}"; export CUDA_VISIBLE_DEVICES; exec "$0" "$@"'
)


def with_its_gpus(plan: BoundPlan, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words behind a shell that looks up the cards' indices of this boot; unchanged where UUIDs will do."""
    assert plan.build is not None
    if not plan.gpu_uuids or plan.build.engine not in BY_INDEX:
        return words
    return ("/bin/sh", "-c", SCRIPT, *words)
