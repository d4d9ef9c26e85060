"""Looks up the names in a service: its model, and the checkpoints, engines and GPUs that it leaves open."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rigup.catalogue.catalogue import Catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.engines import Engine, EngineVersion
from rigup.catalogue.model import Model
from rigup.errors import InputError
from rigup.plain_values import quoted
from rigup.planner.inputs.validation import suggestion
from rigup.planner.memory.weights import check_size
from rigup.rig import Rig
from rigup.service import Service, location_of

_OWN_MIX = "ud-"
"""What unsloth puts before the name of a mix with types of its own."""
REPOSITORY = re.compile(r"(?P<repo>[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*)(?::(?P<quant>[\w.-]{1,64}))?")


class NotInCatalogue(InputError):
    """Raised for a model that is named by its repository or location and was not read yet: `rigup lock` does it.

    where: the path to the service's key. repo, quant: as the service names them. location: instead of a repository.
    """

    def __init__(self, where: str, repo: str, quant: str | None, location: str = "") -> None:
        named = repo or location
        source = "the host" if location.startswith("/") else "Ollama's registry" if location else "the hub"
        add = "" if location.startswith("/") else f", or rigup model add {named}"
        super().__init__(f"{where}: {named} is not in the catalogue yet", f"read it from {source}: rigup lock{add}")
        self.where, self.repo, self.quant, self.location = where, repo, quant, location


class ResolvedNames(NamedTuple):
    """The choices that a service leaves open.

    Every list is in the catalogue's order and not empty, except gpu_indices. draft_model, drafts: of a model that
    drafts tokens, and its checkpoints; None and () if the service names none.
    """

    model: Model
    checkpoints: tuple[CheckpointEntry, ...]
    engines: tuple[tuple[Engine, EngineVersion], ...]
    gpu_indices: tuple[int, ...]
    draft_model: Model | None = None
    drafts: tuple[CheckpointEntry, ...] = ()


def resolve(service: Service, rig: Rig, catalogue: Catalogue, path: str = "") -> ResolvedNames:
    """Looks up every name in a service. path: the file of the service, for messages.

    Raises InputError, whose message begins with `<path>: services.<name>.<key>`, for a name that is not in the
    catalogue or the rig, for an EAGLE head, and for a checkpoint whose size in the catalogue is impossible.
    """
    where = f"{path}: services.{service.name}" if path else f"services.{service.name}"
    checkpoints = _checkpoints(service, catalogue, where, catalogue.served)
    model = catalogue.models_by_name[checkpoints[0].model]
    check_served(model, f"{where}.{'model' if service.checkpoint is None else 'checkpoint'}")
    for checkpoint in checkpoints:
        check_size(checkpoint, model)
    drafts = _drafts(service, catalogue, where)
    return ResolvedNames(
        model,
        checkpoints,
        _engines(service, catalogue, where),
        _gpu_indices(service, rig, where),
        catalogue.models_by_name[drafts[0].model] if drafts else None,
        drafts,
    )


def check_served(model: Model, where: str) -> None:
    """Raises InputError, beginning with `where`, for an EAGLE head: it can only draft for another model."""
    if model.head:
        raise InputError(
            f"{where}: {model.name} is an EAGLE head, which only drafts tokens for another model",
            f'serve the model that it was trained for with "speculative": {{"kind": "eagle", "model": "{model.name}"}}',
        )


def _drafts(service: Service, catalogue: Catalogue, where: str) -> tuple[CheckpointEntry, ...]:
    """The checkpoints of the model that drafts tokens, looked up as the service's own."""
    asked = service.speculative
    if asked is None or asked.model is None:
        return ()
    as_a_service = Service(name=service.name, model=asked.model, quant=asked.quant)
    found = _checkpoints(as_a_service, catalogue, f"{where}.speculative", catalogue.models)
    for checkpoint in found:
        check_size(checkpoint, catalogue.models_by_name[checkpoint.model])
    return found


def _checkpoints(
    service: Service, catalogue: Catalogue, where: str, offered: Iterable[Model]
) -> tuple[CheckpointEntry, ...]:
    """offered: the models that a hint for an unknown name may name."""
    if location := location_of(service.checkpoint or ""):
        found = tuple(entry for entry in catalogue.checkpoints if entry.location == location)
        if not found:
            raise NotInCatalogue(f"{where}.checkpoint", "", service.quant, location)
    elif service.checkpoint is not None:
        found = _in_repo(service.checkpoint, catalogue)
        if not found:
            names = {model.name for model in offered}
            raise InputError(
                f"{where}.checkpoint: unknown checkpoint {quoted(service.checkpoint)}",
                suggestion(service.checkpoint, {entry.repo for entry in catalogue.checkpoints if entry.model in names})
                + "; or add your own: ten lines in catalogue/checkpoints/",
            )
    elif named := REPOSITORY.fullmatch(service.model or ""):
        return _of_repo(named["repo"], named["quant"] or service.quant, catalogue, where)
    else:
        return _of_quant(_checkpoints_of_model(service.model or "", catalogue, where, offered), service.quant, where)
    if service.model is not None and found[0].model.lower() != service.model.lower():
        raise InputError(
            f"{where}.checkpoint: {found[0].repo} holds {found[0].model}, not {service.model}",
            "name the model or the checkpoint, not both",
        )
    return _of_quant(found, service.quant, where)


def _in_repo(repo: str, catalogue: Catalogue) -> tuple[CheckpointEntry, ...]:
    return tuple(entry for entry in catalogue.checkpoints if entry.repo.lower() == repo.lower())


def _of_repo(repo: str, quant: str | None, catalogue: Catalogue, where: str) -> tuple[CheckpointEntry, ...]:
    """The checkpoints of a repository that a service names in place of a model."""
    found = _in_repo(repo, catalogue)
    if quant is not None:
        found = _named(found, quant)
    if not found:
        raise NotInCatalogue(f"{where}.model", repo, quant)
    return found


def _checkpoints_of_model(
    name: str, catalogue: Catalogue, where: str, offered: Iterable[Model]
) -> tuple[CheckpointEntry, ...]:
    folded = {known.lower(): known for known in catalogue.models_by_name}
    if name.lower() not in folded:
        names = (model.name for model in offered)
        raise InputError(f"{where}.model: unknown model {quoted(name)}", suggestion(name, names))
    found = catalogue.checkpoints_by_model.get(folded[name.lower()], ())
    if not found:
        raise InputError(
            f"{where}.model: the catalogue has no checkpoint of {folded[name.lower()]}",
            "add one in catalogue/checkpoints/",
        )
    return found


def _of_quant(found: tuple[CheckpointEntry, ...], quant: str | None, where: str) -> tuple[CheckpointEntry, ...]:
    if quant is None:
        return found
    fitting = _named(found, quant)
    if not fitting:
        raise InputError(
            f"{where}.quant: unknown quantisation {quoted(quant)} of {found[0].model}",
            suggestion(quant, {entry.quant for entry in found}),
        )
    return fitting


def _named(found: tuple[CheckpointEntry, ...], quant: str) -> tuple[CheckpointEntry, ...]:
    """Those of a quantisation. Where there is none, its publisher's own mix: Q4_K_M is UD-Q4_K_M too."""
    wanted = quant.lower()
    exact = tuple(entry for entry in found if entry.quant.lower() == wanted)
    return exact or tuple(entry for entry in found if entry.quant.lower() == f"{_OWN_MIX}{wanted}")


def _engines(service: Service, catalogue: Catalogue, where: str) -> tuple[tuple[Engine, EngineVersion], ...]:
    if service.engine is None and service.version is not None:
        names = [e.name for e in catalogue.engines if e.version(service.version) is not None]
        if not names:
            raise InputError(
                f"{where}.version: no engine has a version {quoted(service.version)}", "name the engine too"
            )
        return tuple(_release(catalogue.engines_by_name[name], service.version, where) for name in names)
    engines = [catalogue.engines_by_name[service.engine]] if service.engine else catalogue.engines
    return tuple(_release(engine, service.version, where) for engine in engines)


def _release(engine: Engine, version: str | None, where: str) -> tuple[Engine, EngineVersion]:
    release = engine.version(version or engine.default_version)
    if release is None:
        wanted = str(version)
        raise InputError(
            f"{where}.version: {engine.title} {quoted(version)} is not supported", engine.other_versions(wanted)
        )
    return engine, release


def _gpu_indices(service: Service, rig: Rig, where: str) -> tuple[int, ...]:
    count = len(rig.gpus)
    if service.gpus is None:
        return tuple(range(count))
    there = f"choose from GPUs 0 to {count - 1}" if count else "leave it out: this rig has no GPU"
    if len(service.gpus) > count:
        raise InputError(f"{where}.gpus: {len(service.gpus)} GPUs are more than this rig has", there)
    if len(set(service.gpus)) < len(service.gpus):
        raise InputError(f"{where}.gpus: a GPU is listed twice", "list each GPU once")
    if any(isinstance(gpu, str) for gpu in service.gpus):
        return _by_uuid(service.gpus, rig, where)
    for number, index in enumerate(service.gpus):
        if not isinstance(index, int) or not 0 <= index < count:
            raise InputError(f"{where}.gpus[{number}]: there is no GPU {index}", there)
    return tuple(index for index in service.gpus if isinstance(index, int))


def _by_uuid(gpus: tuple[int | str, ...], rig: Rig, where: str) -> tuple[int, ...]:
    """GPUs by UUID, which only the host knows: planning can use any of equal GPUs, but not of unequal ones."""
    for number, gpu in enumerate(gpus):
        if not isinstance(gpu, str) or not re.fullmatch(r"GPU-[0-9A-Za-z-]{1,64}", gpu):
            raise InputError(
                f"{where}.gpus[{number}]: {quoted(gpu)} is not a UUID like the others", "use indices or UUIDs, not both"
            )
    if len({gpu.key for gpu in rig.gpus}) > 1:
        raise InputError(f"{where}.gpus: UUIDs cannot be used for planning on a rig with unequal GPUs", "use indices")
    return tuple(range(len(gpus)))
