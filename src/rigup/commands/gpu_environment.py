"""Environment variables that do not depend on the engine: which GPUs a process sees, and in which order."""

from __future__ import annotations

from rigup.planner.candidate import Candidate


def gpu_variables(candidate: Candidate) -> dict[str, str]:
    """CUDA's order made the one that NVML and the plan count in; the GPUs named where they are not all used.

    Source: CUDA C++ programming guide, "CUDA environment variables"; the default order is fastest first.
    """
    if not candidate.rig.gpus:
        return {}
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if candidate.local_gpus != tuple(range(len(candidate.rig.gpus))):
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in candidate.local_gpus)
    return variables
