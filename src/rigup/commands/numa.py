"""How an engine ties the processes of its cards to the NUMA nodes of a host, which only the host knows.

vLLM starts each process behind numactl (0.33.0 utils/numa_utils.py). It ends without numactl, and tries each binding
before it takes it: where the kernel refuses one, it binds processors alone, or nothing. Releases before 0.33.0 were not
read. SGLang and llama.cpp get no options: docs/builds.md says why.
"""

from __future__ import annotations

from rigup.plan import NumaBinding
from rigup.planner.candidate import Candidate

_SINCE = "0.33.0"
_OPTIONS = ("--numa-bind", "--numa-bind-nodes")


def numa_binding(candidate: Candidate) -> NumaBinding | None:
    """What binds the cards of a service on one host; None where nothing surely starts, or the service decides it.

    Weights in host memory may need more than a node has. An image or a PATH of the user's may lack numactl.
    """
    if candidate.engine.name != "vllm" or not candidate.release.at_least(_SINCE) or candidate.build != "wheel":
        return None
    asked = any(option.replace("_", "-").startswith("--numa-bind") for option in candidate.service.flags)
    offloads = candidate.cpu_offload_gib > 0 or not candidate.gpus
    if asked or offloads or "PATH" in candidate.service.environment or candidate.hosts > 1:
        return None
    known = candidate.known_options.issuperset(_OPTIONS)
    return NumaBinding(words=_OPTIONS, packages=("numactl",)) if known else None
