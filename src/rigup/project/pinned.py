"""What a plan needs and the lock does not have: nothing unpinned reaches a host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rigup.errors import InputError
from rigup.lock import Lock
from rigup.plan import Plan

HINT = "run: rigup lock"
HUB_HINT = "run rigup lock on a machine that can reach the hub and the source archive"

Lacking = tuple[str, list[str], str]
"""What is not pinned, what is in its place, and what to do."""


def require_pinned(plans: Iterable[Plan], lock: Lock) -> None:
    """Raises InputError naming the first thing that is not pinned, and what the lock has in its place."""
    for plan in plans:
        assert plan.build is not None
        for what, others, hint in (*_build(plan, lock), *_packages(plan), *_files(plan)):
            instead = f", which has {', '.join(others)}" if others else ""
            raise InputError(f"{plan.host}: {plan.service.name}: {what} is not in rigup.lock{instead}", hint)


def _build(plan: Plan, lock: Lock) -> Iterator[Lacking]:
    build = plan.build
    assert build is not None
    engine, name = build.engine, f"{build.engine} {build.version}"
    if build.method == "source" and build.sha256 is None:
        yield name, [f"{engine} {entry.version}" for entry in lock.sources if entry.engine == engine], HUB_HINT
    if build.method == "wheel" and (build.environment is None or build.uv is None):
        locked = [entry for entry in lock.environments if entry.engine == engine]
        others = [f"{engine} {entry.version} ({entry.variant}, {entry.architecture})" for entry in locked]
        yield f"{name} ({build.variant}, {build.architecture})", others, HINT
    if build.method == "wheel" and build.environment and plan.on_ray and not build.environment.has("ray"):
        yield f"Ray for {name} ({build.variant}, {build.architecture})", [], HINT
    if build.method == "image" and build.image is None:
        others = [f"that of {entry.engine} {entry.version}" for entry in lock.images if entry.engine == engine]
        yield f"the image of {name}", others, HINT


def _packages(plan: Plan) -> Iterator[Lacking]:
    assert plan.build is not None
    packages = (*plan.build.packages, *plan.build.runtime_packages)
    if unpinned := [name for name in packages if name.startswith(("cuda-", "libcublas-"))]:
        yield ", ".join(unpinned), [], HINT
    if plan.moe_config and plan.moe_config.unlocked:
        yield ", ".join(f"files/moe_configs/{path}" for path in plan.moe_config.unlocked), [], HINT


def _files(plan: Plan) -> Iterator[Lacking]:
    for checkpoint in plan.checkpoints:
        if not checkpoint.files:
            yield f"{checkpoint.repo} {checkpoint.quant}", [], HUB_HINT
