"""Which kernels a plan's engine will take, where its own code was asked (rigup.catalogue.kernels)."""

from __future__ import annotations

from rigup.catalogue.kernels import KernelKey, Kernels, kernel_table, kernels_of, kind_of, was_asked
from rigup.plan import Plan
from rigup.planner.candidate import Candidate
from rigup.planner.moe_config import takes_own_files

# What a user's flag may choose instead, by the part of a step.
_CHOOSING = {
    "attention": ("--attention-backend", "--prefill-attention-backend", "--decode-attention-backend"),
    "linear": ("--linear-backend", "--fp8-gemm-backend", "--fp8-gemm-runner-backend"),
    "experts": ("--moe-backend", "--moe-runner-backend"),
    "sampling": ("--sampling-backend",),
}


def planned_kernels(candidate: Candidate) -> Kernels:
    """By the part of a step, without those that the user's flags or rigup's tuned kernels choose."""
    gpus, architecture = candidate.gpus, candidate.architecture
    capabilities = {gpu.compute_capability for gpu in gpus}
    if len(capabilities) != 1 or architecture is None:
        return {}
    (capability,) = capabilities
    kind = kind_of(architecture, candidate.model.experts)
    key = KernelKey(kind, candidate.checkpoint.scheme, str(candidate.kv_cache_type), capability)
    found = kernels_of(candidate.engine.name, candidate.version, key)
    chosen = {name.replace("_", "-") for name in candidate.service.flags}
    return {
        part: names
        for part, names in found.items()
        if chosen.isdisjoint(_CHOOSING.get(part, ())) and not (part == "experts" and takes_own_files(candidate))
    }


def unable(candidate: Candidate) -> str:
    """Why the engine has no attention for the model on a card, as the code of this release said; "" where it has."""
    table = kernel_table(candidate.engine.name, candidate.version)
    if table is None or candidate.architecture is None or not was_asked(candidate.engine.name, candidate.version):
        return ""
    said = table.unable.get(kind_of(candidate.architecture, candidate.model.experts), {})
    return next((said[gpu.compute_capability] for gpu in candidate.gpus if gpu.compute_capability in said), "")


def source_of(candidate: Candidate) -> str:
    """Who says so, and of which release if it is another than the plan's."""
    table = kernel_table(candidate.engine.name, candidate.version)
    assert table is not None
    asked = was_asked(candidate.engine.name, candidate.version)
    nearest = "" if asked else f"; {candidate.version} was not asked"
    return f"docs/judges.md: the code of {candidate.engine.title} {table.version} without a card{nearest}"


def kernels_text(plan: Plan) -> str:
    """ "attention FLASH_ATTN, experts TRITON", in order of a step, and which release was asked if it is another."""
    text = ", ".join(f"{part} {' and '.join(names)}" for part, names in plan.kernels.items())
    build = plan.build
    table = kernel_table(build.engine, build.version) if build else None
    if build is None or table is None or was_asked(build.engine, build.version):
        return text
    return f"{text} (as in {table.version})"
