"""What plans need of the lock, what it lacks of that, and the digest of what was asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rigup.artifacts import ARCHITECTURES, Architecture, LockedEnvironment, Variant
from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.catalogue.engines import EngineVersion
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.driver import driver_plan
from rigup.planner.inputs.names import resolve
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.inventory import HostEntry, Project
from rigup.service import EngineName

Name = tuple[str, str]
BuildName = tuple[str, str, Variant, Architecture]


@dataclass(frozen=True)
class Needs:
    """By name, the first plan that needs it: checkpoints by (repository, quantisation), sources by (engine, version),
    environments and images by (engine, version, variant, architecture).

    driver, cuda_toolkit, uv: whether any plan needs one. free: engines of services that name no version.
    refused: plans that need nothing because they are refused. moe_configs: tuned kernels, path to sha256.
    """

    checkpoints: dict[Name, Plan]
    sources: dict[Name, Plan]
    environments: dict[BuildName, Plan]
    images: dict[BuildName, Plan]
    driver: bool
    cuda_toolkit: bool
    uv: bool
    free: frozenset[EngineName]
    refused: tuple[Plan, ...]
    moe_configs: dict[str, str] = field(default_factory=dict)

    def missing(self, lock: Lock) -> Needs:
        """What of it a lock lacks. A checkpoint without files is as good as none."""
        have = {(entry.repo, entry.quant) for entry in lock.checkpoints if entry.files}
        return Needs(
            {name: plan for name, plan in self.checkpoints.items() if name not in have},
            {name: plan for name, plan in self.sources.items() if lock.source(*name) is None},
            {name: plan for name, plan in self.environments.items() if not suffices(lock.environment(*name), plan)},
            {name: plan for name, plan in self.images.items() if lock.image(*name) is None},
            self.driver and lock.driver is None,
            self.cuda_toolkit and lock.cuda_toolkit is None,
            self.uv and not (lock.uv and all(lock.uv.wheel(architecture) for architecture in ARCHITECTURES)),
            frozenset(),
            (),
            moe_configs={path: sha256 for path, sha256 in self.moe_configs.items() if path not in lock.moe_configs},
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that is needed, as messages call it."""
        checkpoints = (f"checkpoint {repo} {quant}" for repo, quant in sorted(self.checkpoints))
        sources = (f"source {engine} {version}" for engine, version in sorted(self.sources))
        environments = (f"environment {build_label(name)}" for name in sorted(self.environments))
        images = (f"image {build_label(name)}" for name in sorted(self.images))
        kernels = (f"moe-config {path}" for path in sorted(self.moe_configs))
        single = (*(["driver"] * self.driver), *(["cuda-toolkit"] * self.cuda_toolkit), *(["uv"] * self.uv))
        return (*single, *checkpoints, *sources, *environments, *images, *kernels)


def suffices(environment: LockedEnvironment | None, plan: Plan) -> bool:
    """Whether a locked environment has what a plan wants of it."""
    return environment is not None and (environment.has("ray") or not plan.on_ray)


def build_label(name: BuildName) -> str:
    """A build as messages call it: "vllm 0.20.2", with what is unusual about it in brackets."""
    engine, version, variant, architecture = name
    unusual = [*(["cpu"] if variant == "cpu" else []), *([architecture] if architecture != "x86_64" else [])]
    return f"{engine} {version}" + (f" ({', '.join(unusual)})" if unusual else "")


def needs_of(plans: Iterable[Plan]) -> Needs:
    """What the accepted ones among plans need."""
    plans = tuple(plans)
    checkpoints: dict[Name, Plan] = {}
    sources: dict[Name, Plan] = {}
    environments: dict[BuildName, Plan] = {}
    images: dict[BuildName, Plan] = {}
    accepted = [plan for plan in plans if plan.verdict == "ok"]
    for plan in accepted:
        build = plan.build
        assert build is not None
        if plan.checkpoint is not None:
            checkpoints.setdefault((plan.checkpoint.repo, plan.checkpoint.quant), plan)
        if build.method == "source":
            sources.setdefault((build.engine, build.version), plan)
        else:
            builds = images if build.method == "image" else environments
            name = (build.engine, build.version, build.variant, build.architecture)
            if name not in builds or (plan.on_ray and not builds[name].on_ray):
                builds[name] = plan  # one environment serves all, so it has what any of them wants
    return Needs(
        checkpoints,
        sources,
        environments,
        images,
        driver=any(_needs_driver(plan) for plan in accepted),
        cuda_toolkit=any(_needs_toolkit(plan) for plan in accepted),
        uv=bool(environments),
        free=frozenset(plan.build.engine for plan in accepted if plan.build and plan.service.version is None),
        refused=tuple(plan for plan in plans if plan.verdict == "refused"),
        moe_configs={path: sha for plan in accepted if plan.moe_config for path, sha in plan.moe_config.pins.items()},
    )


def _needs_driver(plan: Plan) -> bool:
    return driver_plan(plan.rig, Lock(driver=locked_driver(nvidia_versions().driver.default))) is not None


def _needs_toolkit(plan: Plan) -> bool:
    """Whether the build takes NVIDIA's packages: pinned ones, or ones that some toolkit would pin."""
    assert plan.build is not None
    known = {name for toolkit in nvidia_versions().cuda_toolkits for name in toolkit.packages}
    unpinned = known.intersection((*plan.build.packages, *plan.build.runtime_packages))
    return bool(unpinned or plan.build.pinned_packages or plan.build.pinned_runtime_packages)


def inputs_digest(project: Project, catalogue: Catalogue) -> str:
    """The digest of what a lock follows from: rigs and services as written, and what the catalogue offers for them.

    Neither hosts nor the lock itself count, so that a hundred equal boxes are as one, and locking is repeatable.
    """
    asked = {
        _canonical([host.data["rig"], host.data.get("services"), _offered(host, catalogue)]) for host in project.hosts
    }
    return f"sha256:{hashlib.sha256(_canonical(sorted(asked)).encode()).hexdigest()}"


def _offered(host: HostEntry, catalogue: Catalogue) -> list[Any]:
    """The checkpoints and engine releases that the services of a host may end up with, by name."""
    rig = read_rig(host.data["rig"], host.data_path, catalogue)
    path = host.origins["services"]
    services = read_services(host.data.get("services"), path, rig)
    found: list[Any] = []
    for service in services:
        choices = resolve(service, rig, catalogue, path)
        checkpoints = [[entry.repo, entry.quant, entry.entry] for entry in choices.checkpoints]
        engines = [[r.engine, r.version, r.archive, *_packaged(r)] for _, r in choices.engines]
        found.append([service.name, checkpoints, engines])
    return found


def _packaged(release: EngineVersion) -> list[Any]:
    """What its environments are resolved from."""
    beside = {"source", "provides", "runtime_packages", "ray"}
    return [recipe.model_dump(exclude=beside, exclude_defaults=True) for recipe in release.environments]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
