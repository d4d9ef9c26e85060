"""Multi-node options and variables of each engine, for each host of a node group.

Addresses and interfaces are the tokens of `rigup.node` until they are bound (`rigup.planner.multinode.nodes`).
Sources: vLLM docs/serving/parallelism_scaling.md and engine/arg_utils.py; SGLang server_args.py; llama.cpp
tools/rpc/README.md; NCCL's and Gloo's variables by their own documentation; RAY_ADDRESS by ray.init's.
"""

from __future__ import annotations

from rigup.commands.options import Options
from rigup.node import OWN_ADDRESS, OWN_INTERFACE, OWN_RDMA_DEVICES, address_of
from rigup.planner.candidate import Candidate
from rigup.planner.multinode.ports import join_port


def multinode_options(candidate: Candidate, rank: int) -> Options:
    """The options that join the process of one rank to the others; none on a single host."""
    if candidate.hosts == 1:
        return {}
    port = join_port(candidate.service)
    if candidate.engine.name == "llama.cpp":
        return {"--rpc": ",".join(f"{address_of(other)}:{port}" for other in range(1, candidate.hosts))}
    if candidate.engine.name == "sglang":
        where = f"{address_of(0)}:{port}"
        return {"--nnodes": candidate.hosts, "--node-rank": rank, "--dist-init-addr": where}
    if candidate.service.across_hosts == "ray":
        return {"--distributed-executor-backend": "ray"}
    return {
        "--distributed-executor-backend": "mp",
        "--nnodes": candidate.hosts,
        "--node-rank": rank,
        "--master-addr": address_of(0),
        "--master-port": port,
        "--headless": rank > 0,
    }


def multinode_variables(candidate: Candidate) -> dict[str, str]:
    """Variables that name the interface and devices between the processes of a service; none on a single host."""
    engine = candidate.engine.name
    if candidate.hosts == 1 or engine == "llama.cpp":
        return {}
    variables = {"GLOO_SOCKET_IFNAME": OWN_INTERFACE}
    if candidate.rig.gpus:
        variables |= {"NCCL_SOCKET_IFNAME": OWN_INTERFACE, "NCCL_IB_HCA": OWN_RDMA_DEVICES}
    variables["VLLM_HOST_IP" if engine == "vllm" else "SGLANG_HOST_IP"] = OWN_ADDRESS
    if candidate.service.across_hosts == "ray":
        variables["RAY_ADDRESS"] = f"{address_of(0)}:{join_port(candidate.service)}"
    return variables


def is_worker_only(candidate: Candidate, rank: int) -> bool:
    """Whether this host runs only llama.cpp's RPC server or only Ray, without an engine of its own."""
    on_ray = candidate.engine.name == "vllm" and candidate.service.across_hosts == "ray"
    return candidate.hosts > 1 and rank > 0 and (on_ray or candidate.engine.name == "llama.cpp")


def worker_command(candidate: Candidate) -> tuple[str, ...]:
    """The command of a host without an engine of its own; () if it only runs Ray."""
    rpc = candidate.release.rpc
    if candidate.engine.name != "llama.cpp" or rpc is None:
        return ()
    return (rpc.program, "--host", OWN_ADDRESS, "--port", str(join_port(candidate.service)))
