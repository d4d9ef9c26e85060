"""Reads the options and variables of an engine from its locked wheel and keeps them beside the lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from rigup.catalogue.engine_packages.reading import UNREADABLE, read_names
from rigup.catalogue.option_names import NameList, load_name_lists, name_list_text, package
from rigup.errors import InputError
from rigup.sources.python_environment import Resolution
from rigup.sources.remote_wheel import open_wheel

Names = tuple[NameList, ...]


def names_with(there: Names, resolved: Resolution, log: Callable[[str], None]) -> Names:
    """A fleet's name lists plus that of a newly locked engine wheel, unless the toolkit has it; replaces its old lists.

    Writes nothing. Raises InputError if the names cannot be read.
    """
    environment, wheel = resolved.environment, resolved.engine
    kept = tuple(names for names in there if names.kind != environment.name or names.sha256 == wheel.sha256)
    known = any(names.kind == environment.name for names in kept)
    if known or wheel.sha256 == package(environment.engine, environment.version).get("sha256"):
        return kept
    log(f"reading the options of {environment.engine} {environment.version} from {wheel.name}")
    return (*kept, _read(resolved))


def write_names(folder: Path, names: Names) -> None:
    """Makes the folder contain exactly these lists. Raises InputError if it cannot be written."""
    there = {one.file: name_list_text(one) for one in load_name_lists(folder)}
    write_lists(folder, there, {one.file: name_list_text(one) for one in names})


def write_lists(folder: Path, there: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Makes the folder contain exactly the wanted lists, one a package. Raises InputError if it cannot be written."""
    try:
        for name, text in wanted.items():
            if there.get(name) != text:
                _write(folder / f"{name}.json", text)
        for gone in there.keys() - wanted.keys():
            (folder / f"{gone}.json").unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror}", "check its permissions") from None


def _read(resolved: Resolution) -> NameList:
    environment, wheel = resolved.environment, resolved.engine
    with open_wheel(wheel) as opened:
        try:
            options, variables = read_names(environment.engine, opened)
        except UNREADABLE as error:
            raise InputError(
                f"{wheel.name}: cannot read its options: {error}", "use a version that rigup has been tested with"
            ) from None
    return NameList(
        engine=environment.engine,
        version=environment.version,
        variant=environment.variant,
        architecture=environment.architecture,
        file=wheel.name,
        sha256=str(wheel.sha256),
        options=frozenset(options),
        variables=frozenset(variables),
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.replace(path)
