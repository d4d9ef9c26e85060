"""What plans need from the lock, which of it the lock lacks, and a digest of the inputs of a lock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from rigup.artifacts import ARCHITECTURES, Architecture, LockedEnvironment, Variant
from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.driver_versions import locked_driver, nvidia_versions
from rigup.catalogue.engines import EngineVersion
from rigup.gateway_settings import CACHE_AWARE
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
    """Each dict holds the first plan that needs an item: checkpoints by (repository, quantisation), sources by (engine,
    version), environments and images by (engine, version, variant, architecture).

    driver, cuda_toolkit, uv: whether any plan needs one. smg: whether a gateway does. nccl: the first plan that does.
    free: engines of services without a version. refused: refused plans, which need nothing. moe_configs: tuned kernels,
    path to sha256. systems: of the rigs, as far as they are declared.
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
    systems: frozenset[str] = frozenset()
    smg: bool = False
    nccl: Plan | None = None

    def missing(self, lock: Lock) -> Needs:
        """The needs that a lock does not meet. A checkpoint without files counts as missing."""
        have = {entry.name for entry in lock.checkpoints if entry.files}
        environments = self.environments.items()
        return replace(
            self,
            checkpoints={name: plan for name, plan in self.checkpoints.items() if name not in have},
            sources={name: plan for name, plan in self.sources.items() if lock.source(*name) is None},
            environments={name: plan for name, plan in environments if not suffices(lock.environment(*name), plan)},
            images={name: plan for name, plan in self.images.items() if lock.image(*name) is None},
            driver=self.driver and lock.driver is None,
            cuda_toolkit=self.cuda_toolkit and lock.cuda_toolkit is None,
            uv=self.uv and not (lock.uv and all(lock.uv.wheel(architecture) for architecture in ARCHITECTURES)),
            moe_configs={path: sha256 for path, sha256 in self.moe_configs.items() if path not in lock.moe_configs},
            smg=self.smg and lock.smg is None,
            nccl=None if lock.nccl else self.nccl,
            free=frozenset(),
            refused=(),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every needed item in messages."""
        checkpoints = (f"checkpoint {repo} {quant}" for repo, quant in sorted(self.checkpoints))
        sources = (f"source {engine} {version}" for engine, version in sorted(self.sources))
        environments = (f"environment {build_label(name)}" for name in sorted(self.environments))
        images = (f"image {build_label(name)}" for name in sorted(self.images))
        kernels = (f"moe-config {path}" for path in sorted(self.moe_configs))
        single = {"driver": self.driver, "cuda-toolkit": self.cuda_toolkit, "uv": self.uv, "smg": self.smg}
        single["nccl"] = self.nccl is not None
        wanted = (name for name, is_wanted in single.items() if is_wanted)
        return (*wanted, *checkpoints, *sources, *environments, *images, *kernels)


def suffices(environment: LockedEnvironment | None, plan: Plan) -> bool:
    """Whether a locked environment has the packages that a plan needs."""
    if environment is None or (plan.on_ray and not environment.has("ray")):
        return False
    wanted = plan.build.compiler if plan.build else None
    return wanted is None or environment.has(wanted.package, wanted.series)


def build_label(name: BuildName) -> str:
    """The name of a build in messages: "vllm 0.20.2", with variant and architecture in brackets if unusual."""
    engine, version, variant, architecture = name
    unusual = [*(["cpu"] if variant == "cpu" else []), *([architecture] if architecture != "x86_64" else [])]
    return f"{engine} {version}" + (f" ({', '.join(unusual)})" if unusual else "")


def needs_of(plans: Iterable[Plan]) -> Needs:
    """What the accepted plans need."""
    plans = tuple(plans)
    checkpoints: dict[Name, Plan] = {}
    sources: dict[Name, Plan] = {}
    environments: dict[BuildName, Plan] = {}
    images: dict[BuildName, Plan] = {}
    accepted = [plan for plan in plans if plan.verdict == "ok"]
    for plan in accepted:
        build = plan.build
        assert build is not None
        for checkpoint in plan.checkpoints:
            checkpoints.setdefault((checkpoint.repo, checkpoint.quant), plan)
        if build.method == "source":
            sources.setdefault((build.engine, build.version), plan)
        else:
            builds = images if build.method == "image" else environments
            name = (build.engine, build.version, build.variant, build.architecture)
            if name not in builds or (plan.on_ray and not builds[name].on_ray):
                builds[name] = plan  # plans share one environment, which must have what any of them needs
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
        systems=frozenset(plan.rig.os for plan in accepted if plan.rig.os),
        nccl=next((plan for plan in accepted if plan.build and plan.build.library), None),
    )


def needs_of_project(project: Project, plans: Iterable[Plan]) -> Needs:
    """What a project needs: its plans, and its gateways."""
    gateways = [host.data.get("gateway") for host in project.hosts]
    smg = any(isinstance(said, dict) and said.get("kind") == CACHE_AWARE for said in gateways)
    return replace(needs_of(plans), smg=smg)


def _needs_driver(plan: Plan) -> bool:
    return driver_plan(plan.rig, Lock(driver=locked_driver(nvidia_versions().driver.default))) is not None


def _needs_toolkit(plan: Plan) -> bool:
    """Whether the build uses NVIDIA's packages: pinned ones, or ones that a toolkit would pin."""
    assert plan.build is not None
    known = {name for toolkit in nvidia_versions().cuda_toolkits for name in toolkit.packages}
    unpinned = known.intersection((*plan.build.packages, *plan.build.runtime_packages))
    return bool(unpinned or plan.build.pinned_packages or plan.build.pinned_runtime_packages)


def inputs_digest(project: Project, catalogue: Catalogue) -> str:
    """The digest of a lock's inputs: rigs and services as written, and what the catalogue offers for them.

    The names and the number of hosts do not count, so equal hosts give the same digest; nor does the lock itself, so
    locking is repeatable.
    """
    asked = {
        _canonical([host.data["rig"], host.data.get("services"), _offered(host, catalogue)]) for host in project.hosts
    }
    return f"sha256:{hashlib.sha256(_canonical(sorted(asked)).encode()).hexdigest()}"


def _offered(host: HostEntry, catalogue: Catalogue) -> list[Any]:
    """The checkpoints and engine releases that the planner may choose for a host's services, by name."""
    rig = read_rig(host.data["rig"], host.data_path, catalogue)
    path = host.origins["services"]
    services = read_services(host.data.get("services"), path, rig)
    found: list[Any] = []
    for service in services:
        choices = resolve(service, rig, catalogue, path)
        offered = (*choices.checkpoints, *choices.drafts)
        checkpoints = [[entry.repo, entry.quant, entry.entry] for entry in offered]
        engines = [[r.engine, r.version, r.archive, *_packaged(r)] for _, r in choices.engines]
        found.append([service.name, checkpoints, engines])
    return found


def _packaged(release: EngineVersion) -> list[Any]:
    """The inputs from which a release's environments are resolved; a lock may hold newer ones than `as_released`."""
    beside = {"source", "provides", "runtime_packages", "ray", "compiler", "as_released"}
    return [recipe.model_dump(exclude=beside, exclude_defaults=True) for recipe in release.environments]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
