"""Reads from locked packages what they accept and what they can serve, and keeps both lists beside the lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from rigup.cache import cache_folder
from rigup.catalogue import abilities, option_names
from rigup.catalogue.abilities import AbilityList
from rigup.catalogue.data_files import list_text
from rigup.catalogue.engine_packages.reading import (
    UNREADABLE,
    archive_abilities,
    archive_names,
    problem_of,
    read_names,
    wheel_abilities,
)
from rigup.catalogue.option_names import NameList
from rigup.errors import InputError
from rigup.lock import LockedSource
from rigup.plain_values import cut
from rigup.regular_files import files_in, replace_file
from rigup.sources.python_environment import Resolution
from rigup.sources.remote_wheel import open_wheel

Names = tuple[NameList, ...]
Abilities = tuple[AbilityList, ...]
Log = Callable[[str], None]
_PLAIN = re.compile(r"[!-~]{1,200}")


def names_with(there: Names, resolved: Resolution, log: Log) -> Names:
    """A fleet's name lists plus that of a newly locked engine wheel, unless the toolkit has it; replaces its old lists.

    Writes nothing. Raises InputError if the names cannot be read.
    """
    environment, wheel = resolved.environment, resolved.engine
    kept = _less_older(there, environment.name, str(wheel.sha256))
    listed = option_names.package(environment.engine, environment.version).get("sha256")
    if wheel.sha256 == listed or any(names.of_build(environment.name) for names in kept):
        return kept
    log(f"reading the options of {environment.engine} {environment.version} from {wheel.name}")
    return (*kept, _read(resolved))


def names_with_archive(there: Names, source: LockedSource, log: Log) -> Names:
    """The same for a release that is built from source, whose archive lies in the cache."""
    build = (source.engine, source.version, "", "")
    kept = _less_older(there, build, source.sha256)
    if option_names.package(source.engine, source.version) or any(names.of_build(build) for names in kept):
        return kept
    archive = cache_folder() / "sources" / source.sha256
    log(f"reading the options of {source.engine} {source.version} from its source archive")
    options, variables = _names(source.address, lambda: archive_names(archive, source.root))
    found = NameList(
        engine=source.engine,
        version=source.version,
        file=f"{source.engine}-{source.version}.tar.gz",
        sha256=source.sha256,
        options=options,
        variables=variables,
    )
    return (*kept, found)


def abilities_with_wheel(there: Abilities, resolved: Resolution, log: Log) -> Abilities:
    """A fleet's lists, with that of a release from wheels unless the toolkit or the fleet has it. Nothing is written.

    Reports a wheel that is not as expected; its release then counts as not read. Raises what `open_wheel` does.
    """
    environment, wheel = resolved.environment, resolved.engine
    sha256 = str(wheel.sha256)

    def read() -> AbilityList:
        with open_wheel(wheel) as opened:
            return wheel_abilities(environment.engine, environment.version, opened, wheel.name, sha256)

    return _with_abilities(there, environment.engine, environment.version, sha256, read, log)


def abilities_with_archive(there: Abilities, source: LockedSource, log: Log) -> Abilities:
    """The same for a release that is built from source, whose archive lies in the cache."""
    name = f"{source.engine}-{source.version}.tar.gz"

    def read() -> AbilityList:
        archive = cache_folder() / "sources" / source.sha256
        return archive_abilities(source.version, archive, source.root, name, source.sha256)

    return _with_abilities(there, source.engine, source.version, source.sha256, read, log)


def write_names(folder: Path, names: Names) -> None:
    """Makes the folder contain exactly these lists. Raises InputError if it cannot be written."""
    _write(folder, {one.file: list_text(one) for one in names})


def write_abilities(folder: Path, lists: Abilities) -> None:
    """Makes the folder contain exactly these lists. Raises InputError if it cannot be written."""
    _write(folder, {one.file: list_text(one) for one in lists})


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    """Makes the folder contain exactly these texts, by package."""
    wanted = {folder / f"{name}.json": text.encode() for name, text in texts.items()}
    try:
        for path, content in wanted.items():
            if not path.exists() or path.read_bytes() != content:
                folder.mkdir(parents=True, exist_ok=True)
                replace_file(path, content)
        for gone in set(files_in(folder, ".json")) - wanted.keys():
            gone.unlink()
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", "check its permissions") from None


def _less_older(there: Names, build: tuple[str, str, str, str], sha256: str) -> Names:
    return tuple(names for names in there if not names.of_build(build) or names.sha256 == sha256)


def _read(resolved: Resolution) -> NameList:
    environment, wheel = resolved.environment, resolved.engine
    with open_wheel(wheel) as opened:
        options, variables = _names(wheel.name, lambda: read_names(environment.engine, opened))
    return NameList(
        **environment.model_dump(include={"engine", "version", "variant", "architecture"}),
        file=wheel.name,
        sha256=str(wheel.sha256),
        options=options,
        variables=variables,
    )


def _names(package: str, read: Callable[[], tuple[set[str], set[str]]]) -> tuple[frozenset[str], frozenset[str]]:
    try:
        options, variables = read()
        if odd := next((name for name in options | variables if not _PLAIN.fullmatch(name)), None):
            raise ValueError(f"a name is {odd!a}")
    except UNREADABLE as error:
        problem = cut(problem_of(error)) or "its source is nested too deeply"
        hint = "use a version that rigup has been tested with"
        raise InputError(f"{package}: cannot read its options: {problem}", hint) from None
    return frozenset(options), frozenset(variables)


def _with_abilities(
    there: Abilities, engine: str, version: str, sha256: str, read: Callable[[], AbilityList], log: Log
) -> Abilities:
    others = tuple(one for one in there if (one.engine, one.version) != (engine, version))
    known = any(one.sha256 == sha256 for one in there if one not in others)
    if known or abilities.package(engine, version):
        return there
    log(f"reading what {engine} {version} can serve from its package")
    try:
        return (*others, read())
    except UNREADABLE as error:
        log(f"{engine} {version}: cannot read what it can serve: {cut(problem_of(error))}")
        return others
