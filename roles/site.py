"""Everything for one host, in order: its base, then the build, the weights and the unit of each service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module

from rigup import layout
from rigup.facts.probe import Probe, read_probe
from rigup.gateway.paths import ADMIN_PROGRAM
from rigup.host import Host
from rigup.operations.builds.source import name_of
from rigup.operations.driver.state import unsuited_build
from rigup.operations.service.gpu_binding import BoundNodes, bind, needs_driver_to_bind
from rigup.operations.service.moe_configs import after_start
from rigup.operations.service.releases import GroupMembership
from rigup.plan import BoundPlan, Build, Plan
from rigup.planner.driver_packages import driver_repository
from rigup.settings import Builder, HostSettings, PackageSource
from rigup.systemd.nftables import PACKAGE, is_closed
from rigup.systemd.port_guard import is_guarded
from rigup.systemd.run_together import PROGRAM as WATCH
from rigup.systemd.run_together import watch_of
from roles.base import base
from roles.gpus import broken_driver, gpus
from roles.judgement import judgement
from roles.monitoring import monitoring
from roles.removed import no_gateway, removed, stopped
from roles.service import moe_configs, service
from roles.weights import no_hub_token, weights

EngineRole = Callable[[Build, str, PackageSource, tuple[Builder, ...]], None]

# By module and name; a module is imported for hosts that have such a build.
ENGINES = {
    ("llama.cpp", "source"): ("roles.engine_llama_cpp", "engine_llama_cpp"),
    ("vllm", "wheel"): ("roles.engine_environment", "engine_vllm"),
    ("sglang", "wheel"): ("roles.engine_environment", "engine_sglang"),
    **{(name, "image"): ("roles.engine_image", "engine_image") for name in ("llama.cpp", "vllm", "sglang")},
}

# NCCL loads libibverbs.so.1 and the provider of the device when it starts, and falls back to sockets without them.
RDMA_PACKAGES = ("ibverbs-providers", "libibverbs1")


def provision(
    plans: tuple[Plan, ...],
    probe: Probe,
    settings: HostSettings,
    nodes: Mapping[str, BoundNodes] | None = None,
    membership: Callable[[BoundPlan], GroupMembership] | None = None,
) -> None:
    """Calls the roles for one host, in dependency order; only gateway and exporters if the host serves nothing.

    nodes: by service, the hosts of its node group with addresses. membership: of this host in the node group of a plan.
    """
    if plans:
        _serve(plans, probe, settings, nodes or {}, membership)
    else:
        if settings.gateway:
            base((), (ADMIN_PROGRAM,))
        _clean_up(plans, probe, settings)
    if settings.gateway:
        from roles.gateway import gateway  # few hosts are one

        gateway(settings.gateway, probe, settings.packages)
    else:
        no_gateway()
    exporters(probe, settings, alone=not plans and settings.gateway is None)


def _clean_up(plans: tuple[Plan, ...], probe: Probe, settings: HostSettings) -> None:
    """Removes an unused hub token, stops disabled services, and removes with --remove those no longer planned."""
    if settings.hub_token is None or not any(plan.checkpoints for plan in plans):
        no_hub_token()
    if disabled := tuple(name for name in settings.disabled if name in probe.current):
        stopped(disabled, probe)
    if settings.remove:
        removed(tuple(sorted(set(probe.current) - {plan.service.name for plan in plans} - set(settings.disabled))))


def _serve(
    offline: tuple[Plan, ...],
    probe: Probe,
    settings: HostSettings,
    nodes: Mapping[str, BoundNodes],
    membership: Callable[[BoundPlan], GroupMembership] | None,
) -> None:
    plans = bind(offline, probe, nodes)
    packages = {p for plan in plans if plan.build for p in plan.build.runtime_packages}
    packages |= {PACKAGE for plan in plans if is_closed(plan) or is_guarded(plan)}
    packages |= {name for plan in plans for node in plan.nodes if node.rdma_devices for name in RDMA_PACKAGES}
    programs = [WATCH] if any(watch_of(plan) for plan in plans) else []
    broken_driver(plans, probe)
    base(tuple(packages), (*programs, *([ADMIN_PROGRAM] if settings.gateway else ())))
    driver_changes = gpus(plans, probe, settings)
    if any(plan.build and plan.build.method == "image" for plan in plans):
        from roles.engine_image import containers  # most hosts have none

        containers(plans, probe, settings)
    if any(plan.nodes for plan in plans):
        from roles.node_group import firewall, ray  # few services span hosts

        if any(plan.on_ray for plan in plans):
            ray()
        for plan in plans:
            if is_closed(plan):
                firewall(plan)
    staged: list[tuple[BoundPlan, str]] = []
    for plan in plans:
        assert plan.build is not None
        name = name_of(plan.build, probe.architecture, probe.os)
        engine_role(plan.build)(plan.build, name, settings.packages, settings.builders)
        for checkpoint in plan.checkpoints:
            wheelhouse, limits = settings.packages.wheelhouse, settings.weights_limits
            weights(checkpoint, *settings.source_of(checkpoint.location), wheelhouse, *limits)
        judgement(plan, name, plans, settings)
        if plan.moe_folder is not None:
            moe_configs(plan.moe_folder, f"{layout.BUILDS}/{name}")
        staged.append((plan, name))
    _clean_up(plans, probe, settings)
    kernels = tuple(plan.moe_folder.path for plan in plans if plan.moe_folder)
    for plan, name in staged:
        why = unsuited_build(probe, plan.service.name, plan.build)
        after = partial(after_start, plan=plan, keep=kernels)
        key = settings.api_keys.get(plan.service.name)
        later = partial(_rebound, offline, nodes, plan.service.name) if needs_driver_to_bind(plans) else None
        member = membership(plan) if membership and plan.nodes else None
        service(plan, name, key, restart=driver_changes, why=why, afterwards=after, rebind=later, membership=member)


def engine_role(build: Build) -> EngineRole:
    """The role that puts a build on a host."""
    module, name = ENGINES[build.engine, build.method]
    role: EngineRole = getattr(import_module(module), name)
    return role


def exporters(probe: Probe, settings: HostSettings, alone: bool = True) -> None:
    """Calls the role for exporters last, so that a failing exporter does not keep a service from running.

    alone: whether no other role runs on this host.
    """
    wanted = settings.monitoring
    repository = (
        driver_repository(probe.os, probe.architecture, settings.nvidia_repository, settings.nvidia_key_fingerprint)
        if wanted and wanted.dcgm_exporter
        else None
    )
    monitoring(wanted, probe, repository, alone)


def _rebound(plans: tuple[Plan, ...], nodes: Mapping[str, BoundNodes], name: str, host: Host) -> BoundPlan:
    """The plan of a service with the GPUs of its host, now that the driver is loaded."""
    return next(plan for plan in bind(plans, read_probe(host), nodes) if plan.service.name == name)
