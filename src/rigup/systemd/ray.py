"""The Ray part of a service's unit, if Ray joins its hosts: each host's unit runs that host's part.

A host has one unit, not two, so that engine and Ray restart together and a release or a rollback covers both.
"""

from __future__ import annotations

from rigup.layout import PROGRAMS
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
    runs, ray = (f"{build_folder}/bin/python", "-I", PROGRAM), _ray_words(plan, build_folder)
    if plan.rank:
        return (*runs, "worker", _head_of(plan), "--", *ray)
    return (*runs, "head", _head_of(plan), str(JOIN_SECONDS), *_hosts_of(plan), "--", *ray, "--", *engine)


def question(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    """The command that lists, on the head, the hosts that are not in the cluster."""
    return (f"{build_folder}/bin/python", "-I", PROGRAM, "nodes", _head_of(plan), *_hosts_of(plan))


def _ray_words(plan: BoundPlan, build_folder: str) -> tuple[str, ...]:
    """`ray start` on this host. The kernel chooses the ports that rigup does not name, so that they are free."""
    role = (
        ("--head", f"--port={_port_of(plan)}", "--dashboard-host=127.0.0.1", "--disable-usage-stats")
        if plan.rank == 0
        else (f"--address={_head_of(plan)}",)
    )
    return (
        f"{build_folder}/bin/ray",
        "start",
        *role,
        "--block",
        f"--node-ip-address={plan.addresses[plan.rank]}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--num-gpus={len(plan.memory) if plan.rig.gpus else 0}",
    )


def _head_of(plan: BoundPlan) -> str:
    """The address and port at which the head's Ray waits for workers."""
    return f"{plan.addresses[0]}:{_port_of(plan)}"


def _port_of(plan: BoundPlan) -> int:
    """The port of the head's Ray."""
    return next(peer.port for peer in plan.peer_ports if peer.purpose == "ray")


def _hosts_of(plan: BoundPlan) -> tuple[str, ...]:
    """Every host, as NAME=ADDRESS."""
    return tuple(f"{node.host}={address}" for node, address in zip(plan.nodes, plan.addresses, strict=True))
