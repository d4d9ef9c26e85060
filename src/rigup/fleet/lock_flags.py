"""The options and variables of an engine, read out of the very wheel that was locked and kept beside the lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rigup.catalogue.engine_names import read_names
from rigup.catalogue.flags import NameList, load_name_lists, name_list_text, package
from rigup.errors import InputError
from rigup.operations.environment_resolution import Resolution
from rigup.operations.remote_wheel import open_wheel


def keep_names(folder: Path, resolved: Resolution, say: Callable[[str], None]) -> None:
    """Sees to it that the names of an engine are those of its locked wheel: the toolkit's list, or one in folder.

    One of another wheel of the same build is replaced. Raises InputError where they cannot be read, or kept.
    """
    environment, wheel = resolved.environment, resolved.engine
    there = [names for names in load_name_lists(folder) if names.kind == environment.name]
    others = [names for names in there if names.sha256 != wheel.sha256]
    try:
        if wheel.sha256 != package(environment.engine, environment.version).get("sha256") and others == there:
            say(f"reading the options of {environment.engine} {environment.version} out of {wheel.name}")
            _write(folder / f"{wheel.name}.json", name_list_text(_read(resolved)))
        for names in others:
            if names.file != wheel.name:
                (folder / f"{names.file}.json").unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}", "may you write there?") from None


def _read(resolved: Resolution) -> NameList:
    environment, wheel = resolved.environment, resolved.engine
    with open_wheel(wheel) as opened:
        try:
            options, variables = read_names(environment.engine, opened)
        except (KeyError, SyntaxError, ValueError) as error:
            raise InputError(
                f"{wheel.name}: its options cannot be read: {error}", "name a version that rigup has been tried with"
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
