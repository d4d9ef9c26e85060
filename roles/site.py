"""Everything, in order: what a host needs, then for each service its build, its weights, and the service itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rigup import layout
from rigup.facts.probe import Probe, read_probe
from rigup.fleet.settings import Settings
from rigup.operations.builds import name_of
from rigup.operations.driver_state import unsuited_build
from rigup.operations.gpu_binding import bound, waits
from rigup.operations.moe_configs import after_start
from rigup.operations.wheels import PackageSource
from rigup.plan import Build, Plan
from rigup.planner.driver_packages import driver_repository
from rigup.render.nftables import PACKAGE, is_closed
from rigup.render.watch import PROGRAM as WATCH
from rigup.render.watch import watch_of
from roles.base import base
from roles.engine_image import containers, engine_image
from roles.engine_llama_cpp import engine_llama_cpp
from roles.engine_sglang import engine_sglang
from roles.engine_vllm import engine_vllm
from roles.firewall import firewall
from roles.gpus import gpus
from roles.moe_configs import moe_configs
from roles.monitoring import monitoring
from roles.ray import ray
from roles.removed import removed
from roles.service import service
from roles.weights import weights

if TYPE_CHECKING:
    from rigup.fleet.spanning import Sets

ENGINES: dict[tuple[str, str], Callable[[Build, str, PackageSource], None]] = {
    ("llama.cpp", "source"): engine_llama_cpp,
    ("vllm", "wheel"): engine_vllm,
    ("sglang", "wheel"): engine_sglang,
    **{(name, "image"): engine_image for name in ("llama.cpp", "vllm", "sglang")},
}

# NCCL looks for libibverbs.so.1, and for the device's part of it, when it starts, and takes sockets without.
RDMA_PACKAGES = ("ibverbs-providers", "libibverbs1")


def provision(plans: tuple[Plan, ...], probe: Probe, settings: Settings, sets: Sets | None = None) -> None:
    """Calls the roles for one host, in the order in which things must be there; only exporters where nothing is served.

    sets: of a run in which hosts serve together.
    """
    if plans:
        _serve(plans, probe, settings, sets)
    else:
        _leave_off(plans, probe, settings)
    exporters(probe, settings, alone=not plans)


def _leave_off(plans: tuple[Plan, ...], probe: Probe, settings: Settings) -> None:
    """Takes away what no plan names any more, where the run is to."""
    if settings.remove:
        removed(tuple(sorted(set(probe.current) - {plan.service.name for plan in plans})))


def _serve(plans: tuple[Plan, ...], probe: Probe, settings: Settings, sets: Sets | None) -> None:
    plans = bound(plans, probe)
    packages = {p for plan in plans if plan.build for p in plan.build.runtime_packages}
    packages |= {PACKAGE for plan in plans if is_closed(plan)}
    packages |= {name for plan in plans for node in plan.nodes if node.rdma_devices for name in RDMA_PACKAGES}
    base(tuple(packages), (WATCH,) if any(watch_of(plan) for plan in plans) else ())
    driver_changes = gpus(plans, probe, settings)
    containers(plans, probe, settings)
    if any(plan.on_ray for plan in plans):
        ray()
    for plan in plans:
        if is_closed(plan):
            firewall(plan)
    staged: list[tuple[Plan, str]] = []
    for plan in plans:
        assert plan.build is not None
        name = name_of(plan.build, probe.architecture, probe.os)
        ENGINES[plan.build.engine, plan.build.method](plan.build, name, settings.packages)
        if plan.checkpoint is not None:
            house, limits = settings.packages.wheelhouse, settings.weights_limits
            weights(plan.checkpoint, settings.hub, settings.hub_token, house, *limits)
        if plan.moe_folder is not None:
            moe_configs(plan.moe_folder, f"{layout.BUILDS}/{name}")
        staged.append((plan, name))
    _leave_off(plans, probe, settings)
    kernels = tuple(plan.moe_folder.path for plan in plans if plan.moe_folder)
    for plan, name in staged:
        why = unsuited_build(probe, plan.service.name, plan.build)
        after = partial(after_start, plan=plan, keep=kernels)
        key = settings.api_keys.get(plan.service.name)
        later = partial(_as_told_now, plans, plan.service.name) if waits(plans) else None
        part = sets.part(plan) if sets and plan.nodes else None
        service(plan, name, key, restart=driver_changes, why=why, afterwards=after, settle=later, part=part)


def exporters(probe: Probe, settings: Settings, alone: bool = True) -> None:
    """Calls the role that makes a host tell of itself, last: no exporter that fails keeps a service from running.

    alone: whether no other role is called.
    """
    wanted = settings.monitoring
    repository = (
        driver_repository(probe.os, probe.architecture, settings.nvidia_repository, settings.nvidia_key_fingerprint)
        if wanted and wanted.dcgm_exporter
        else None
    )
    monitoring(wanted, probe, repository, alone)


def _as_told_now(plans: tuple[Plan, ...], name: str, host: Any) -> Plan:
    """The plan of a service with the cards that its host has, now that a driver can be asked."""
    return next(plan for plan in bound(plans, read_probe(host)) if plan.service.name == name)
