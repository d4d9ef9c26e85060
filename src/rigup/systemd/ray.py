"""The Ray part of a service's unit, if Ray joins its hosts: each host's unit runs that host's part.

A host has one unit, not two, so that engine and Ray restart together and a release or a rollback covers both.
"""

from __future__ import annotations

from rigup.layout import PROGRAMS
from rigup.node import address_of
from rigup.plan import BoundPlan
from rigup.units import GIB

PROGRAM = f"{PROGRAMS}/ray_node.py"
# How long the head waits for the workers before it starts again; the workers wait for the head without limit.
JOIN_SECONDS = 300
# Little data passes through Ray's object store, because tensors use NCCL and the engine's own shared memory. By default
# Ray would reserve a third of the host's memory for it.
OBJECT_STORE = "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"
# With Ray's defaults (5 checks of 10 s in a row), noticing a lost host takes a minute. With these values, a worker
# whose head is gone also exits after 20 s instead of 60, and can join the next head. Source:
# ray/common/ray_config_def.h.
VARIABLES = {
    OBJECT_STORE: str(GIB),
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_timeout_ms": "5000",
}


def with_ray(plan: BoundPlan, build_folder: str, engine: tuple[str, ...]) -> tuple[str, ...]:
    """The unit's command on this host: the engine behind Ray on the head, Ray alone on workers.

    engine: the head's whole command. Contains tokens where the plan does not have addresses yet.
    """
    runs = (f"{build_folder}/bin/python", "-I", PROGRAM)
    if plan.rank:
        return (*runs, "worker", head_of(plan), "--", *ray_words(plan, build_folder))
    hosts = hosts_of(plan)
    return (
        *runs,
        "head",
        head_of(plan),
        str(JOIN_SECONDS),
        *hosts,
        "--",
        *ray_words(plan, build_folder),
        "--",
        *engine,
    )


def question(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    """The command that lists, on the head, the hosts that are not in the cluster."""
    return (f"{build_folder}/bin/python", "-I", PROGRAM, "nodes", head_of(plan), *hosts_of(plan))


def ray_words(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    """`ray start` on this host. The kernel chooses the ports that rigup does not name, so that they are free."""
    own = plan.nodes[plan.rank].address or address_of(plan.rank)
    role = (
        ("--head", f"--port={port_of(plan)}", "--dashboard-host=127.0.0.1", "--disable-usage-stats")
        if plan.rank == 0
        else (f"--address={head_of(plan)}",)
    )
    return (
        f"{build_folder}/bin/ray",
        "start",
        *role,
        "--block",
        f"--node-ip-address={own}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--num-gpus={len(plan.memory) if plan.rig.gpus else 0}",
    )


def head_of(plan: BoundPlan) -> str:
    """The address and port at which the head's Ray waits for workers."""
    return f"{plan.nodes[0].address or address_of(0)}:{port_of(plan)}"


def port_of(plan: BoundPlan) -> int:
    """The port of the head's Ray."""
    return next(peer.port for peer in plan.peer_ports if peer.purpose == "ray")


def hosts_of(plan: BoundPlan) -> tuple[str, ...]:
    """Every host, as NAME=ADDRESS."""
    return tuple(f"{node.host}={node.address or address_of(rank)}" for rank, node in enumerate(plan.nodes))
