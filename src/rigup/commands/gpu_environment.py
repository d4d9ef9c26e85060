"""Environment variables that do not depend on the engine: which GPUs a process sees, and in what order."""

from __future__ import annotations

from rigup.planner.candidate import Candidate


def gpu_variables(candidate: Candidate) -> dict[str, str]:
    """Makes CUDA count GPUs in the order of NVML and the plan, and selects the GPUs if not all are used.

    Source: CUDA C++ programming guide, "CUDA environment variables"; CUDA's default order is fastest first.
    """
    if not candidate.rig.gpus:
        return {}
    variables = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if candidate.local_gpus != tuple(range(len(candidate.rig.gpus))):
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in candidate.local_gpus)
    return variables
