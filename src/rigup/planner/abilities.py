"""What releases cannot serve because their packages do not have it, and which others have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.engines import Engine, EngineVersion
from rigup.catalogue.model import Model, ParserNames
from rigup.planner.candidate import Candidate

# What an engine calls its own search for a parser.
AUTOMATIC = "auto"


def parsers_of(candidate: Candidate) -> ParserNames:
    """The parsers that the release has for the model, best first.

    Of a model for which none is known, the release's own search, if it has one.
    """
    if candidate.engine.name in candidate.model.parsers:
        return candidate.release.parsers_of(candidate.model)
    tool, reasoning = (
        (AUTOMATIC,) if AUTOMATIC in candidate.known_values(option) else ()
        for option in ("--tool-call-parser", "--reasoning-parser")
    )
    return ParserNames(tool=tool, reasoning=reasoning)


def unsupported(
    model: Model, checkpoint: CheckpointEntry | None, release: EngineVersion, engines: Iterable[Engine]
) -> tuple[str, str] | None:
    """Why a release cannot serve the architecture of a checkpoint of a model, and what to do: message and hint.

    None if it can. checkpoint: None for any in transformers' format. engines: those that are looked at for one that has
    the architecture.
    """
    if not release.lacks(model, checkpoint):
        return None
    here = f"{release.title} {release.version}"
    name = release.architecture_of(model, checkpoint)
    if name is not None:
        message = f"{here} has no architecture `{name}`"
    elif model.architectures:
        message = f"{here} has no architecture for `{model.architectures[0]}`"
    else:
        return (
            f"the catalogue does not name the class of {model.name}, by which {release.title} chooses the architecture",
            "set architectures in the model's file, as in its config.json",
        )

    def suits(other: EngineVersion) -> bool:
        reads = checkpoint is None or other.reads_format(checkpoint)
        return reads and other.abilities.read and not other.lacks(model, checkpoint)

    having = others_that(release, engines, suits)
    nowhere = "no engine in the catalogue has it; if a release of yours does, add it in catalogue/engines/"
    return message + titles(having), instead_of(release, having) or nowhere


def others_that(
    release: EngineVersion, engines: Iterable[Engine], suits: Callable[[EngineVersion], bool]
) -> tuple[EngineVersion, ...]:
    """Other releases that suit: of its own engine the one that comes next, else the last before it, and of each other
    engine the default one, else the newest.
    """
    found = []
    for engine in sorted(engines, key=lambda engine: engine.name != release.engine):
        newest_first = tuple(reversed(engine.versions))
        if engine.name == release.engine:
            later = tuple(other for other in engine.versions if other.key > release.key)
            order = (*later, *(other for other in newest_first if other.key < release.key))
        else:
            order = tuple(sorted(newest_first, key=lambda other: other.version != engine.default_version))
        found += [other for other in order if suits(other)][:1]
    return tuple(found)


def instead_of(release: EngineVersion, others: tuple[EngineVersion, ...]) -> str:
    """A hint to use another release, as `others_that` returns them: one of the same engine, if there is one."""
    if others and others[0].engine == release.engine:
        return f"set version to {others[0].version}"
    return f"use {' or '.join(other.title for other in others)}" if others else ""


def titles(releases: tuple[EngineVersion, ...]) -> str:
    """The end of a message: "; vLLM 0.33.0 has", "; SGLang 0.5.23 and vLLM 0.33.0 have", or nothing."""
    *first, last = [f"{other.title} {other.version}" for other in releases] or [""]
    return f"; {', '.join(first)} and {last} have" if first else f"; {last} has" if last else ""


def loads(checkpoint: CheckpointEntry, release: EngineVersion) -> bool:
    """Whether that release of an engine loads that checkpoint at all, provided that it has the model."""
    engines = checkpoint.minimum_versions
    known = engines is None or release.engine in engines
    reads = release.support(checkpoint.scheme, checkpoint.method) is not None
    return known and reads and release.reads_format(checkpoint)
