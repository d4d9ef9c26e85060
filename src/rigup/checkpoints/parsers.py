"""Which parsers a model that is being added has: its own, those of what it was made from, or those of its class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rigup.catalogue.known_parsers import parsers_of
from rigup.catalogue.model import Model, ParserNames
from rigup.checkpoints.stored_names import model_name
from rigup.service import EngineName

Parsers = dict[EngineName, ParserNames]


@dataclass(frozen=True)
class FoundParsers:
    """The parsers by engine, empty if nothing is known, and their source. assumed: only other models have them."""

    by_engine: Parsers = field(default_factory=dict)
    source: str = ""
    assumed: bool = False


def find_parsers(
    name: str, classes: Sequence[str], made_from: Sequence[str], card: str, models: Mapping[str, Model]
) -> FoundParsers:
    """The parsers of a model of that name.

    classes: as its config.json names them. made_from: the repositories that its card names as its bases. card: the
    source of these. models: those of the catalogue, which a base may be one of, and which tell of a class.
    """
    if known := parsers_of(name):
        return FoundParsers(known.by_engine, "; ".join(known.sources.values()))
    bases = [(repo, _of_base(repo, models)) for repo in made_from]
    if bases and bases[0][1].by_engine and all(found.by_engine == bases[0][1].by_engine for _, found in bases):
        repo, found = bases[0]
        return FoundParsers(found.by_engine, f"{card}: base_model {repo}; {found.source}", found.assumed)
    return _of_class(classes, models)


def _of_base(repo: str, models: Mapping[str, Model]) -> FoundParsers:
    wanted = model_name(repo).lower()
    model = next((model for name, model in models.items() if name.lower() == wanted), None)
    if model is not None and model.parsers:
        return FoundParsers(model.parsers, model.sources.get("parsers", "catalogue"), model.parsers_assumed)
    known = parsers_of(repo)
    return FoundParsers(known.by_engine, "; ".join(known.sources.values())) if known else FoundParsers()


def _of_class(classes: Sequence[str], models: Mapping[str, Model]) -> FoundParsers:
    """What all models of the class have whose parsers are known for themselves; nothing where two differ."""
    alike = [each for each in models.values() if set(classes) & set(each.architectures) and not each.parsers_assumed]
    if not alike or not alike[0].parsers or any(each.parsers != alike[0].parsers for each in alike):
        return FoundParsers()
    names = ", ".join(sorted(each.name for each in alike)[:3])
    return FoundParsers(alike[0].parsers, f"{classes[0]}: as of {names}", assumed=True)
