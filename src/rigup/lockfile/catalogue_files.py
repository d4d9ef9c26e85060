"""What `rigup model add` and `rigup lock` write into a fleet's catalogue, and the models that services name by repo."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from rigup.catalogue.catalogue import FOLDER, Catalogue, load_catalogue
from rigup.checkpoints.describe import Described, describe
from rigup.checkpoints.entry_text import checkpoint_text, model_text
from rigup.checkpoints.repository import hub_repository
from rigup.errors import InputError
from rigup.planner.inputs.names import NotInCatalogue, resolve
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.inventory import HostEntry, Project
from rigup.project.inventory_edit import FileEdit, written
from rigup.sources.hub import Hub

WRITTEN = "Written by rigup model add; run it again to bring it up to date."


def catalogue_edits(root: Path, found: Described) -> list[FileEdit]:
    """The files that are not as they should be. A model that the catalogue has already is left alone."""
    entry = found.checkpoint
    name = f"{entry.repo.replace('/', '--')}--{entry.quant}.toml"
    texts = {root / FOLDER / "checkpoints" / name: checkpoint_text(entry, WRITTEN)}
    if not found.known:
        own = re.sub(r"[^\w.-]+", "-", found.model.name).lstrip("-.") or "model"
        texts = {root / FOLDER / "models" / f"{own}.toml": model_text(found.model, WRITTEN), **texts}
    edits = []
    for path, text in texts.items():
        there = path.read_text() if path.is_file() else None
        if there != text:
            edits.append(FileEdit(path, text, "new" if there is None else "changed"))
    return edits


def write_entries(root: Path, edits: list[FileEdit]) -> Catalogue:
    """Writes them and reads the catalogue again. Raises InputError, with nothing written, where it cannot be read."""
    try:
        with written(edits):
            return load_catalogue(root)
    except InputError as error:
        raise InputError(f"nothing was written: {error.message}", error.hint) from None


def with_named_models(
    project: Project, catalogue: Catalogue, hub_of: Callable[[HostEntry], Hub], log: Callable[[str], None]
) -> Catalogue:
    """The catalogue with every repository that a service names as its model and that was not in it.

    Raises InputError, naming the service, for what the hub does not have or cannot be read, and Unreachable.
    """
    for host in project.hosts:
        while missing := _missing(host, catalogue):
            hub = hub_of(host)
            log(f"reading {missing.repo} from {hub.name}")
            try:
                repository = hub_repository(hub, missing.repo, "main")
                found = describe(repository, missing.quant, catalogue.models_by_name)
                edits = catalogue_edits(project.root, found)
                catalogue = write_entries(project.root, edits)
            except InputError as error:
                raise InputError(f"{missing.where}: {error.message}", error.hint) from None
            for edit in edits:
                log(f"{edit.path.relative_to(project.root)}: {edit.action}")
            if not any(entry.repo == found.checkpoint.repo for entry in catalogue.checkpoints):
                raise InputError(f"{missing.where}: {missing.repo} cannot be added", "add it: rigup model add")
    return catalogue


def _missing(host: HostEntry, catalogue: Catalogue) -> NotInCatalogue | None:
    """The first model of a host's services that is a repository and not in the catalogue."""
    rig = read_rig(host.data["rig"], host.data_path, catalogue)
    path = host.origins.get("services", host.data_path)
    for service in read_services(host.data.get("services") or {}, path, rig):
        try:
            resolve(service, rig, catalogue, path)
        except NotInCatalogue as missing:
            return missing
    return None
