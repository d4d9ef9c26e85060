"""Reads the options and variables of an engine from its locked package and keeps them beside the lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from rigup.cache import cache_folder
from rigup.catalogue.engine_packages.reading import UNREADABLE, archive_names, problem_of, read_names
from rigup.catalogue.option_names import NameList, name_list_text, package
from rigup.errors import InputError
from rigup.lock import LockedSource
from rigup.plain_values import cut
from rigup.regular_files import files_in, replace_file
from rigup.sources.python_environment import Resolution
from rigup.sources.remote_wheel import open_wheel

Names = tuple[NameList, ...]
_PLAIN = re.compile(r"[!-~]{1,200}")


def names_with(there: Names, resolved: Resolution, log: Callable[[str], None]) -> Names:
    """A fleet's name lists plus that of a newly locked engine wheel, unless the toolkit has it; replaces its old lists.

    Writes nothing. Raises InputError if the names cannot be read.
    """
    environment, wheel = resolved.environment, resolved.engine
    kept = _less_older(there, environment.name, str(wheel.sha256))
    listed = package(environment.engine, environment.version).get("sha256")
    if wheel.sha256 == listed or any(names.of_build(environment.name) for names in kept):
        return kept
    log(f"reading the options of {environment.engine} {environment.version} from {wheel.name}")
    return (*kept, _read(resolved))


def names_with_archive(there: Names, source: LockedSource, log: Callable[[str], None]) -> Names:
    """The same for a release that is built from source, whose archive lies in the cache."""
    build = (source.engine, source.version, "", "")
    kept = _less_older(there, build, source.sha256)
    if package(source.engine, source.version) or any(names.of_build(build) for names in kept):
        return kept
    file, archive = f"{source.engine}-{source.version}.tar.gz", cache_folder() / "sources" / source.sha256
    log(f"reading the options of {source.engine} {source.version} from its source archive")
    options, variables = _names(source.address, lambda: archive_names(archive, source.root))
    found = NameList(
        engine=source.engine,
        version=source.version,
        file=file,
        sha256=source.sha256,
        options=options,
        variables=variables,
    )
    return (*kept, found)


def write_names(folder: Path, names: Names) -> None:
    """Makes the folder contain exactly these lists. Raises InputError if it cannot be written."""
    write_lists(folder, {one.file: name_list_text(one) for one in names})


def write_lists(folder: Path, texts: Mapping[str, str]) -> None:
    """Makes the folder contain exactly these lists, by package. Raises InputError if it cannot be written."""
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
        engine=environment.engine,
        version=environment.version,
        variant=environment.variant,
        architecture=environment.architecture,
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
