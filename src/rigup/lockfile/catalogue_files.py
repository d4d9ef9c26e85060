"""What `rigup model add` and `rigup lock` write into a fleet's catalogue, and the models that services name by repo."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from rigup.catalogue.catalogue import FOLDER, Catalogue, load_catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.checkpoints.describe import Described, describe
from rigup.checkpoints.entry_text import checkpoint_text, model_text
from rigup.errors import InputError
from rigup.lockfile.resolver import Resolver
from rigup.planner.inputs.names import NotInCatalogue, resolve
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.inventory import HostEntry, Project
from rigup.project.inventory_edit import FileEdit, written

WRITTEN = "Written by rigup model add; run it again to bring it up to date."


def catalogue_edits(root: Path, found: Described, known: Iterable[CheckpointEntry]) -> list[FileEdit]:
    """The files that are not as they should be. A model that the catalogue has already is left alone.

    known: the checkpoints of the catalogue. One at another location that has the same name already keeps it.
    """
    entry = found.checkpoint
    if any(entry.label == other.label and entry.location != other.location for other in known):
        digest = hashlib.sha256(entry.location.encode()).hexdigest()[:8]
        entry = entry.model_copy(update={"repo": f"{entry.repo}-{digest}"})
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


def with_named_models(project: Project, catalogue: Catalogue, resolver: Resolver) -> Catalogue:
    """The catalogue with every repository or location that a service names and that was not in it.

    Raises InputError, naming the service, for what the hub does not have or cannot be read, and Unreachable.
    """
    for host in project.hosts:
        while missing := _missing(host, catalogue):
            try:
                repository, quant = resolver.repository(host, missing.repo, missing.location)
                found = describe(repository, quant or missing.quant, catalogue.models_by_name)
                edits = catalogue_edits(project.root, found, catalogue.checkpoints)
                catalogue = write_entries(project.root, edits)
            except InputError as error:
                raise InputError(f"{missing.where}: {error.message}", error.hint) from None
            for edit in edits:
                resolver.log(f"{edit.path.relative_to(project.root)}: {edit.action}")
            if not any(_is(entry, missing) for entry in catalogue.checkpoints):
                raise InputError(f"{missing.where}: {missing.repo} cannot be added", "add it: rigup model add")
    return catalogue


def _is(entry: CheckpointEntry, missing: NotInCatalogue) -> bool:
    return entry.location == missing.location and missing.repo.lower() in ("", entry.repo.lower())


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
