"""`rigup lock`: updates a fleet's lock so that it pins everything its plans need. Writes the file in one step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rigup.catalogue.abilities import AbilityList
from rigup.catalogue.catalogue import ABILITY_LISTS, FOLDER, NAME_LISTS, Catalogue
from rigup.catalogue.option_names import NameList
from rigup.errors import InputError, Refused
from rigup.lock import Lock, LockedCheckpoint, load_lock
from rigup.lockfile.entries import EntryChange, changes, with_entries, with_moe_configs
from rigup.lockfile.needs import (
    BuildName,
    Name,
    Needs,
    build_label,
    inputs_digest,
    needs_of,
    needs_of_project,
    suffices,
)
from rigup.lockfile.package_lists import write_abilities, write_names
from rigup.lockfile.resolver import Resolver
from rigup.lockfile.text import lock_text
from rigup.lockfile.upgrade import (
    CUDA_TOOLKIT,
    DRIVER,
    EVAL,
    MOE_CONFIGS,
    NCCL,
    SMG,
    UV,
    Upgrade,
    is_engine,
    release_edit,
    unlisted_release,
    upgraded_builds,
    upgraded_checkpoints,
    with_chosen_version,
    with_upgraded_nvidia,
)
from rigup.plan import Plan
from rigup.planner.driver import driver_for, toolkit_for
from rigup.planner.inputs.names import NotInCatalogue
from rigup.project.inventory import LOCK, Project, load_project
from rigup.project.inventory_edit import FileEdit, written
from rigup.project.planning import plan_project
from rigup.regular_files import replace_file


@dataclass(frozen=True)
class ResolvedLock:
    """A new lock that is not written yet, the lock that it replaces, and what the plans need under it.

    names, abilities: the fleet's lists of options and variables, and of what releases can serve; also those of newly
    locked packages. releases: files of the fleet's catalogue with releases that it did not have.
    """

    path: Path
    before: Lock
    after: Lock
    needs: Needs
    names: tuple[NameList, ...] = ()
    abilities: tuple[AbilityList, ...] = ()
    releases: tuple[FileEdit, ...] = ()

    @property
    def changes(self) -> tuple[EntryChange, ...]:
        """The differences from the previous lock."""
        return changes(self.before, self.after)


def own_lock(project: Project) -> Path:
    """The path of the lock that `rigup lock` writes: the fleet's own, even if the toolkit's lock applied until now."""
    return project.root / LOCK


def resolve_lock(
    project: Project, resolver: Resolver, upgrade: Upgrade | None = None, prune: bool = False, whole: bool = True
) -> ResolvedLock:
    """Plans the fleet and resolves what the lock lacks, repeatedly, until the lock has everything that its plans need.

    Locked entries stay as they are, except those that `upgrade` names. prune: drop entries that no plan of a locked
    inventory uses. whole: whether `project` is a whole inventory, so that the digest of its inputs can be recorded.
    Raises InputError, Unreachable or MissingTool, without writing anything.
    """
    path = own_lock(project)
    kept = load_lock(project.lock_path)
    before = kept if path.exists() else Lock()
    if upgrade is not None:
        kept = _upgraded(project, kept, upgrade, resolver)
    uv = kept.uv if kept.harnesses else None
    new = Lock(inputs=before.inputs, engines=kept.engines, harnesses=kept.harnesses, uv=uv)
    begin = new if prune or not path.exists() else kept
    after, needs = _settled(project, begin, kept, resolver)
    if prune:
        after = _with_used_by_others(project, after, kept, resolver.catalogue)
        after, needs = _settled(project, after, kept, resolver)
    if upgrade is not None:
        _refuse_losses(upgrade, project, before, needs)
    # Driver and toolkit may both be what refuses every plan: each moves on its own.
    if not needs.checkpoints and needs.refused and not (upgrade and upgrade.name in (DRIVER, CUDA_TOOLKIT)):
        raise _nothing_accepted(needs.refused[0])
    if whole:
        inputs = {**after.inputs, inventory_key(project): inputs_digest(project, resolver.catalogue)}
        after = after.model_copy(update={"inputs": inputs})
    catalogue = resolver.catalogue
    releases = tuple(release_edit(project.root, change) for change in resolver.added)
    return ResolvedLock(path, before, after, needs, catalogue.name_lists, catalogue.ability_lists, releases)


def inventory_key(project: Project) -> str:
    """The inventory's name in the lock: its path relative to the fleet's folder."""
    return project.inventory.resolve().relative_to(project.root.resolve()).as_posix()


def _settled(project: Project, lock: Lock, kept: Lock, resolver: Resolver) -> tuple[Lock, Needs]:
    """A lock that has everything its plans need.

    This may take several rounds, because the real size of a checkpoint can make a plan choose another one. Every round
    adds an entry, so the loop ends.
    """
    while True:
        needs = needs_of_project(project, plan_project(project, lock, resolver.catalogue))
        missing = needs.missing(lock)
        if not missing.names:
            return lock, needs
        lock = _supplied(lock, missing, kept, resolver)


def _supplied(lock: Lock, missing: Needs, kept: Lock, resolver: Resolver) -> Lock:
    """The lock with the missing entries, taken from the previous lock where possible and otherwise resolved."""
    if missing.driver:
        lock = lock.model_copy(update={"driver": driver_for(missing.systems, kept.driver)})
    if missing.cuda_toolkit:
        lock = lock.model_copy(update={"cuda_toolkit": toolkit_for(missing.systems, kept.cuda_toolkit)})
    for name, plan in missing.checkpoints.items():
        lock = with_entries(lock, checkpoints=[_checkpoint(name, plan, lock, kept, resolver)])
    for name in missing.sources:
        lock = with_entries(lock, sources=[kept.source(*name) or resolver.source(name)])
    if missing.uv:
        lacking = missing.missing(kept).uv  # the lock has no uv, or not for every architecture
        uv = resolver.uv(kept.uv.version if kept.uv else None) if lacking else kept.uv
        lock = lock.model_copy(update={"uv": uv})
    if missing.smg:
        lock = lock.model_copy(update={"smg": kept.smg or resolver.smg()})
    if missing.nccl:
        lock = lock.model_copy(update={"nccl": kept.nccl or resolver.nccl(missing.nccl)})
    for build, plan in missing.environments.items():
        assert lock.uv is not None
        there = kept.environment(*build)
        found = there if there and suffices(there, plan) else resolver.environment(build, plan, lock.uv)
        if not suffices(found, plan):
            raise _without_compiler(build, plan)
        lock = with_entries(lock, environments=[found])
    for image, plan in missing.images.items():
        lock = with_entries(lock, images=[kept.image(*image) or resolver.image(image, plan)])
    return with_moe_configs(lock, {path: kept.moe_configs.get(path, sha) for path, sha in missing.moe_configs.items()})


def _without_compiler(build: BuildName, plan: Plan) -> InputError:
    """Of packages that do not bring the compiler which the recipe says that they do."""
    wanted = plan.build and plan.build.compiler
    what = f"{wanted.package} {wanted.series}" if wanted else "Ray"
    return InputError(
        f"{build_label(build)}: its packages do not include {what}", "add it to requirements in the engine's file"
    )


def _checkpoint(name: Name, plan: Plan, lock: Lock, kept: Lock, resolver: Resolver) -> LockedCheckpoint:
    """One checkpoint; a repository that is already locked keeps its revision."""
    found = kept.checkpoint(*name)
    if found is not None and found.files:
        return found
    revisions = [entry.revision for entry in (*kept.checkpoints, *lock.checkpoints) if entry.repo == name[0]]
    return resolver.checkpoint(name, plan, next(iter(revisions), "main"))


def _upgraded(project: Project, lock: Lock, upgrade: Upgrade, resolver: Resolver) -> Lock:
    """The lock after resolving again what an upgrade names."""
    moved = with_upgraded_nvidia(upgrade, lock)
    if moved is not None:
        return moved
    if upgrade.name == MOE_CONFIGS:
        unpinned = lock.model_copy(update={"moe_configs": {}})
        in_use = needs_of(
            plan_project(project, unpinned, resolver.catalogue)
        ).moe_configs  # the plans will pin the current files
        elsewhere = {path: sha256 for path, sha256 in lock.moe_configs.items() if path not in in_use}
        return lock.model_copy(update={"moe_configs": elsewhere})
    if upgrade.name == UV:
        return lock.model_copy(update={"uv": resolver.uv(upgrade.version, str(upgrade))})
    if upgrade.name == SMG:
        return lock.model_copy(update={"smg": resolver.smg(upgrade.version, str(upgrade))})
    if upgrade.name == EVAL:
        uv = lock.uv or resolver.uv()
        harnesses = [resolver.harness(uv, upgrade.version)]
        return with_entries(lock, harnesses=harnesses).model_copy(update={"uv": uv})
    if upgrade.name == NCCL:
        plan = needs_of(plan_project(project, lock, resolver.catalogue)).nccl
        if plan is None:
            raise InputError(f"{upgrade}: no service uses NCCL", "see what each service uses: rigup plan")
        return lock.model_copy(update={"nccl": resolver.nccl(plan, upgrade.version, str(upgrade))})
    if (new := unlisted_release(upgrade, resolver.catalogue)) is not None:
        resolver.add_release(new, str(upgrade))
    needs = needs_of(plan_project(project, lock, resolver.catalogue))
    if is_engine(upgrade, resolver.catalogue):
        return _upgraded_engine(project, lock, upgrade, needs, resolver)
    names = upgraded_checkpoints(upgrade, needs, lock, resolver.catalogue)
    # Files at a path are those of the hosts that use them, and no others.
    named = {name: needs.checkpoints.get(name) for name in names}
    others = [plan for plan in named.values() if plan] or list(needs.checkpoints.values())
    found = {name: plan or others[0] for name, plan in named.items() if plan or (others and not resolver.on_host(name))}
    if not found:
        if needs.refused and not others:
            raise _nothing_accepted(needs.refused[0])
        raise InputError(f"{upgrade}: no service uses {names[0][0]}", "see what each service uses: rigup plan")
    revision, asked = upgrade.version or "main", str(upgrade)
    return with_entries(lock, checkpoints=[resolver.checkpoint(*each, revision, asked) for each in found.items()])


def _upgraded_engine(project: Project, lock: Lock, upgrade: Upgrade, needs: Needs, resolver: Resolver) -> Lock:
    """The lock with a new default version of an engine, and with the engine's builds resolved again."""
    moved = with_chosen_version(upgrade, lock, needs)
    if moved.engines != lock.engines:
        needs = needs_of(plan_project(project, moved, resolver.catalogue))
        _refuse_losses(upgrade, project, lock, needs)
        lock = moved
    builds = upgraded_builds(upgrade, needs)
    lock = with_entries(lock, sources=[resolver.source(name) for name in builds.sources])
    if builds.environments:
        uv = lock.uv or resolver.uv()
        found = [resolver.environment(*each, uv, str(upgrade)) for each in builds.environments.items()]
        lock = with_entries(lock, environments=found).model_copy(update={"uv": uv})
    return with_entries(lock, images=[resolver.image(*each) for each in builds.images.items()])


def _with_used_by_others(project: Project, lock: Lock, kept: Lock, catalogue: Catalogue) -> Lock:
    """The lock plus the previous entries that other inventories of the fleet use; forgets deleted inventories."""
    own = inventory_key(project)
    others = [key for key in sorted(lock.inputs) if key != own and (project.root / key).is_file()]
    projects = [load_project(str(project.root / key)) for key in others]
    found = [needs_of_project(other, plan_project(other, kept, catalogue)) for other in projects]
    for field in ("checkpoints", "sources", "environments", "images"):
        used = {name for needs in found for name in getattr(needs, field)}
        lock = with_entries(lock, **{field: [entry for entry in getattr(kept, field) if entry.name in used]})
    kernels = {path for needs in found for path in needs.moe_configs} & kept.moe_configs.keys()
    lock = with_moe_configs(lock, {path: kept.moe_configs[path] for path in kernels})
    return lock.model_copy(
        update={
            "driver": lock.driver or (kept.driver if any(needs.driver for needs in found) else None),
            "cuda_toolkit": lock.cuda_toolkit or (kept.cuda_toolkit if any(n.cuda_toolkit for n in found) else None),
            "uv": lock.uv or (kept.uv if lock.environments else None),
            "smg": lock.smg or (kept.smg if any(needs.smg for needs in found) else None),
            "nccl": lock.nccl or (kept.nccl if any(needs.nccl for needs in found) else None),
            "inputs": {key: lock.inputs[key] for key in (own, *others) if key in lock.inputs},
        }
    )


def _refuse_losses(upgrade: Upgrade, project: Project, before: Lock, needs: Needs) -> None:
    """Raises InputError if a plan that was accepted is refused after an upgrade."""
    refused = {(plan.host, plan.service.name): plan for plan in needs.refused}
    for plan in plan_project(project, before) if refused else ():
        lost = refused.get((plan.host, plan.service.name))
        if plan.verdict == "ok" and lost is not None:
            finding = lost.refusals[0]
            raise InputError(
                f"{upgrade}: {plan.host}: {plan.service.name} would be refused: {finding.message} [{finding.rule}]",
                finding.hint,
            )


def _nothing_accepted(first: Plan) -> Refused:
    message = f"every plan is refused, so there is nothing to lock; {first.host}: {first.service.name}: "
    return Refused(message + first.refusals[0].message, "see why, and what would fit: rigup plan")


def stale(project: Project, catalogue: Catalogue) -> tuple[str, ...]:
    """The pins that `rigup lock` would add or move, and refused services, in words. Works offline and writes nothing.

    A change of the inventory that moves no pin, such as another port, does not count.
    """
    path = own_lock(project)
    if not path.exists():
        return (f"{LOCK} does not exist",)
    lock = load_lock(path)
    try:
        needs = needs_of_project(project, plan_project(project, lock, catalogue))
    except NotInCatalogue as missing:
        return (f"{missing.message}, so nothing of it is pinned",)
    found = [f"{name} is missing" for name in needs.missing(lock).names]
    found += _refused(needs)
    return tuple(found)


def _refused(needs: Needs) -> list[str]:
    """One line for each refused service, for which nothing is pinned; equal hosts share a line."""
    hosts: dict[str, list[str]] = {}
    for plan in needs.refused:
        finding = plan.refusals[0]
        hosts.setdefault(f"{plan.service.name} is refused: {finding.message} [{finding.rule}]", []).append(plan.host)
    more = {text: f" and {len(names) - 1} more" if len(names) > 1 else "" for text, names in hosts.items()}
    return [f"{names[0]}{more[text]}: {text}" for text, names in hosts.items()]


def write(resolved: ResolvedLock) -> bool:
    """Writes releases, lists and the lock; returns whether the lock changed on disk. Raises InputError on failure."""
    with written(resolved.releases):
        write_names(resolved.path.parent / FOLDER / NAME_LISTS, resolved.names)
        write_abilities(resolved.path.parent / FOLDER / ABILITY_LISTS, resolved.abilities)
        return write_lock(resolved.path, resolved.after)


def write_lock(path: Path, lock: Lock) -> bool:
    """Writes a lock in one step, unless the file already has this content; returns whether it wrote the file.

    Raises InputError on failure; the old file then remains.
    """
    path, text = path.resolve(), lock_text(lock).encode()
    try:
        if path.exists() and path.read_bytes() == text:
            return False
        replace_file(path, text)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", "check permissions and free disk space") from None
    return True
