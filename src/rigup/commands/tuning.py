"""The job that tunes a plan's fused-MoE kernel on a host, for programs/tune_moe.py. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rigup.commands.moe_configs import VARIABLES
from rigup.layout import weights_folder
from rigup.plan import Plan

# The default token counts of both engines' tuners. Source: benchmark_moe.py of vLLM 0.33.0 and
# common_utils.py of SGLang.
TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
# What both tuners call 16 bits.
SIXTEEN_BITS = "auto"


def tuning_job(plan: Plan, build: str, work: str, program: str, tokens: Sequence[int], runs: int) -> dict[str, Any]:
    """The job. build, work: folders on the host. program: the tuner's file name in `work`."""
    assert plan.build is not None and plan.checkpoint is not None and plan.moe_config is not None
    engine, python = plan.build.engine, f"{build}/bin/python"
    model = weights_folder(plan.checkpoint.repo, plan.checkpoint.revision or "")
    words = (
        python,
        f"{work}/{program}",
        "--model",
        model,
        *_spread(plan),
        "--dtype",
        plan.moe_config.dtype or SIXTEEN_BITS,
    )
    return {
        "work": work,
        "python": python,
        "tune": [[*words, "--tune", "--batch-size", str(count)] for count in tokens],
        "measure": [*words, *_measured(engine, tokens)],
        "gpus": [row.gpu for row in plan.memory if plan.rig.gpus[row.gpu].name == plan.moe_config.device],
        "runs": runs,
        "variable": VARIABLES[engine],
        "baseline": plan.moe_folder.path if plan.moe_folder else None,
        "tokens": list(tokens),
        "below": "configs" if engine == "sglang" else "",
    }


def _spread(plan: Plan) -> tuple[str, ...]:
    """How the experts are distributed, in each tuner's options: vLLM also distributes them over data parallel ranks."""
    assert plan.build is not None and plan.parallel is not None
    tensor, expert = plan.parallel.tensor, plan.parallel.expert
    if plan.build.engine == "sglang":
        return ("--tp-size", str(tensor), "--ep-size", str(expert))
    ranks = ("--tp-size", str(tensor * plan.parallel.data))
    return (*ranks, "--enable-expert-parallel") if expert > 1 else ranks


def _measured(engine: str, tokens: Sequence[int]) -> tuple[str, ...]:
    """Which token counts to measure. SGLang's option takes one number in some versions; by default it measures all."""
    if engine == "sglang":
        return () if len(tokens) > 1 else ("--batch-size", str(tokens[0]))
    return ("--batch-size", *(str(count) for count in tokens))
