"""Whether the sizes of a service can be shared out over its hosts, and whether a tensor parallel group spans them.

Sources: vLLM 0.33.0 engine/arg_utils.py and v1/executor/multiproc_executor.py, SGLang 0.5.23 server_args.py: the number
of hosts must divide the world size, and the ranks of a host are consecutive.
"""

from __future__ import annotations

from rigup.planner.candidate import Candidate

_SOURCE = "vLLM engine/arg_utils.py: --nnodes must evenly divide the world size; SGLang server_args.py: the same"


def indivisible_layout(candidate: Candidate) -> tuple[str, str, str] | None:
    """Why the sizes cannot be divided over the hosts, with a hint and a source; None if they can.

    Every host has the same number of ranks, and a tensor parallel group fits on one host or covers whole hosts.
    """
    parallel, hosts = candidate.parallel, candidate.hosts
    ranks = parallel.tensor * parallel.pipeline * parallel.data
    sizes = f"tensor {parallel.tensor} x pipeline {parallel.pipeline} x data {parallel.data}"
    if ranks % hosts or (not candidate.rig.gpus and ranks != hosts):
        whose = "hosts" if candidate.rig.gpus else "hosts without a GPU (one rank each)"
        message = (
            f"{sizes} are {ranks} rank{'s' if ranks > 1 else ''}, which cannot be divided evenly among {hosts} {whose}"
        )
        product = f"a multiple of {hosts}" if candidate.rig.gpus else str(hosts)
        return message, f"choose sizes whose product is {product} (rig.hosts_per_service)", _SOURCE
    each = ranks // hosts
    if each % parallel.tensor and parallel.tensor % each:
        return (
            f"{sizes} put {each} ranks on each of {hosts} hosts: a tensor parallel group of {parallel.tensor} would "
            "be split across part of a host",
            "choose a tensor_parallel that divides the number of GPUs used on a host, or is a multiple of it",
            _SOURCE,
        )
    return None


def tensor_spans_hosts(candidate: Candidate) -> bool:
    """Whether a tensor parallel group spans several hosts."""
    parallel = candidate.parallel
    each = parallel.tensor * parallel.pipeline * parallel.data // candidate.hosts
    return candidate.hosts > 1 and candidate.engine.name != "llama.cpp" and parallel.tensor > each
