"""Reads what a release can serve from its locked package and keeps it beside the lock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rigup.cache import cache_folder
from rigup.catalogue.abilities import AbilityList, ability_list_text, package
from rigup.catalogue.engine_packages.reading import UNREADABLE, archive_abilities, problem_of, wheel_abilities
from rigup.lock import LockedSource
from rigup.lockfile.package_options import write_lists
from rigup.plain_values import cut
from rigup.sources.python_environment import Resolution
from rigup.sources.remote_wheel import open_wheel

Lists = tuple[AbilityList, ...]
Log = Callable[[str], None]


def abilities_with_wheel(there: Lists, resolved: Resolution, log: Log) -> Lists:
    """A fleet's lists, with that of a release from wheels unless the toolkit or the fleet has it. Nothing is written.

    Reports a wheel that is not as expected; its release then counts as not read. Raises what `open_wheel` does.
    """
    environment, wheel = resolved.environment, resolved.engine
    sha256 = str(wheel.sha256)

    def read() -> AbilityList:
        with open_wheel(wheel) as opened:
            return wheel_abilities(environment.engine, environment.version, opened, wheel.name, sha256)

    return _with(there, environment.engine, environment.version, sha256, read, log)


def abilities_with_archive(there: Lists, source: LockedSource, log: Log) -> Lists:
    """The same for a release that is built from source, whose archive lies in the cache."""
    name = f"{source.engine}-{source.version}.tar.gz"

    def read() -> AbilityList:
        archive = cache_folder() / "sources" / source.sha256
        return archive_abilities(source.version, archive, source.root, name, source.sha256)

    return _with(there, source.engine, source.version, source.sha256, read, log)


def write_abilities(folder: Path, lists: Lists) -> None:
    """Makes the folder contain exactly these lists. Raises InputError if it cannot be written."""
    write_lists(folder, {one.file: ability_list_text(one) for one in lists})


def _with(there: Lists, engine: str, version: str, sha256: str, read: Callable[[], AbilityList], log: Log) -> Lists:
    others = tuple(one for one in there if (one.engine, one.version) != (engine, version))
    known = any(one.sha256 == sha256 for one in there if one not in others)
    if known or package(engine, version):
        return there
    log(f"reading what {engine} {version} can serve from its package")
    try:
        return (*others, read())
    except UNREADABLE as error:
        log(f"{engine} {version}: cannot read what it can serve: {cut(problem_of(error))}")
        return others
