"""The part of a service's unit that is Ray, where Ray joins its hosts: on each of them the unit runs this host's part.

One unit a host, not two: what is lost together starts again together, and a release, rolled back or forward, is whole.
"""

from __future__ import annotations

from rigup.layout import PROGRAMS
from rigup.node import address_of
from rigup.plan import BoundPlan
from rigup.units import GIB

PROGRAM = f"{PROGRAMS}/ray_node.py"
# How long the head waits for the others before it starts anew; they wait for it without end.
JOIN_SECONDS = 300
# What passes through Ray's object store is small: tensors go by NCCL and by shared memory of the engine's own. Ray
# would take a third of the host's memory for it.
OBJECT_STORE = "RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES"
# Ray's own figures take a minute to see that a host is gone, 5 questions of 10 s in a row. And a worker whose head has
# gone ends after 20 s in place of 60, so that it can join the next one. Source: ray/common/ray_config_def.h.
VARIABLES = {
    OBJECT_STORE: str(GIB),
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_timeout_ms": "5000",
}


def with_ray(plan: BoundPlan, build_folder: str, engine: tuple[str, ...]) -> tuple[str, ...]:
    """What the unit runs on this host: the engine behind Ray on the head, Ray alone on the others.

    engine: the head's command, whole. Addresses are as far in as the plan has them.
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
    """What says, on the head, who is not part of the cluster."""
    return (f"{build_folder}/bin/python", "-I", PROGRAM, "nodes", head_of(plan), *hosts_of(plan))


def ray_words(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    """`ray start` of this host. Ports that nobody names are the kernel's to choose, so that none is taken."""
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
    """Where the head's Ray waits for the others."""
    return f"{plan.nodes[0].address or address_of(0)}:{port_of(plan)}"


def port_of(plan: BoundPlan) -> int:
    """The port of it."""
    return next(peer.port for peer in plan.peer_ports if peer.purpose == "ray")


def hosts_of(plan: BoundPlan) -> tuple[str, ...]:
    """Every host, as NAME=ADDRESS."""
    return tuple(f"{node.host}={node.address or address_of(rank)}" for rank, node in enumerate(plan.nodes))
