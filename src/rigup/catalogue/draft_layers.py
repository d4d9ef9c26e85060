"""Which releases run the built-in draft layers (MTP) of a model: engines have a class of its own for them."""

import functools

from rigup.catalogue.data_files import DATA, read_file
from rigup.catalogue.engines import EngineVersion
from rigup.catalogue.model import Model
from rigup.service import EngineName
from rigup.units import Frozen


class DraftLayers(Frozen):
    """classes: the engine's classes of draft layers, best first, by the class or architecture of the model.

    loaded: how many modules it loads where a model has more, by the same. loaded_source: where that is from.
    """

    engine: EngineName
    source: str
    classes: dict[str, tuple[str, ...]]
    loaded: dict[str, int] = {}
    loaded_source: str = ""


def runs_draft_layers(release: EngineVersion, model: Model) -> bool:
    """Whether a release has a class for the draft layers of a model."""
    known = _known()[release.engine].classes
    names = (release.architecture_of(model),) if release.engine == "llama.cpp" else model.architectures
    return any(release.abilities.has("architectures", name) for own in names for name in known.get(own or "", ()))


def loaded_modules(engine: EngineName, model: Model) -> int:
    """How many of a model's draft modules an engine loads."""
    known = _known()[engine].loaded
    return min((known[name] for name in model.architectures if name in known), default=draft_modules(model))


def draft_modules(model: Model) -> int:
    """How many built-in draft modules a model has: layers without attention belong to those that have some."""
    return sum(len(entry.layers) for entry in model.mtp_attention if entry.kind != "none")


def source(engine: EngineName) -> str:
    """Where an engine's table is from."""
    return _known()[engine].source


@functools.cache
def _known() -> dict[str, DraftLayers]:
    return {entry.engine: entry for entry in read_file(DATA / "draft_layers.toml", "draft_layers", DraftLayers)}
